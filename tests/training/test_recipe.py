"""labkit.training.recipes: what is accepted, and that every refusal is one line naming the key and the file."""

import math
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from labkit.system.errors import LabkitError
from labkit.training import recipes, schema
from labkit.training.recipes import RecipeError

BASE = {
    "lab": "mine",
    "base": {
        "network": {"name": "resnet20"},
        "data": {"format": "cifar10", "folder": "somewhere", "batch_size": 8},
        "schedule": {"name": "quadratic", "lr_init": 0.01, "lr_max": 0.1},
        "epochs": 3,
    },
    "profiles": {"sample": {}, "long": {"epochs": 30, "schedule": {"lr_max": 0.2}}},
}


@pytest.fixture
def recipe_file(tmp_path):
    """Function that writes a recipe: BASE with dotted keys of the base replaced, or removed where None."""

    def write(**changes):
        tree = yaml.safe_load(yaml.safe_dump(BASE))
        for key, value in changes.items():
            *folders, last = key.split("__")
            place = tree["base"]
            for folder in folders:
                place = place.setdefault(folder, {})
            place[last] = value
            if value is None:
                del place[last]
        file = tmp_path / "recipe.yaml"
        file.write_text(yaml.safe_dump(tree))
        return file

    return write


@pytest.fixture
def folder_file(recipe_file):
    """As recipe_file, for data in an image folder."""
    return lambda **changes: recipe_file(data__format="image_folder", **changes)


def refusal(file, profile="sample", settings=()):
    """The message of the RecipeError that loading raises; it must be one line."""
    with pytest.raises(RecipeError) as caught:
        recipes.load(file, profile, tuple(settings))
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and isinstance(caught.value, LabkitError)
    return message


# -- What is accepted -----------------------------------------------------------------------------


def test_profile_over_base_and_setting_over_both(recipe_file):
    file = recipe_file()
    assert recipes.load(file, "sample").epochs == 3
    long = recipes.load(file, "long")
    assert (long.epochs, long.schedule.lr_max, long.schedule.lr_init) == (30, 0.2, 0.01)
    assert (long.lab, long.profile) == ("mine", "long")
    both = recipes.load(file, "long", ("schedule.lr_max=0.3", "epochs=31", "epochs=32"))
    assert (both.epochs, both.schedule.lr_max, both.schedule.lr_init) == (32, 0.3, 0.01)


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "+1e-4", "1.e-4", "0.1e-3", ".1e-3"])
def test_numbers_with_exponents_are_numbers(recipe_file, text):
    """YAML 1.1 reads 1e-4 as text."""
    assert recipes.load(recipe_file(), "sample", (f"loss.smoothing={text}",)).loss.smoothing == 1e-4
    file = recipe_file(loss__smoothing="NUMBER")
    file.write_text(file.read_text().replace("NUMBER", text))
    assert recipes.load(file, "sample").loss.smoothing == 1e-4


@pytest.mark.parametrize("old, new, says", [
    ("epochs: 3\n", "epochs: 3\n  epochs: 50\n", "line 7: not valid YAML: epochs: twice"),
    ("  sample: {}\n", "  sample: {}\n  sample: {epochs: 1}\n", "not valid YAML: sample: twice"),
    ("epochs: 3\n", "epochs: 010\n", "epochs: must be a valid number, not '010'"),
    ("epochs: 3\n", "epochs: 1:30\n", "epochs: must be a valid number, not '1:30'"),
])  # fmt: skip
def test_a_key_stands_once_and_a_number_is_decimal(recipe_file, old, new, says):
    """PyYAML takes the last of two keys, and 010 for 8."""
    file = recipe_file()
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert says in refusal(file)


def test_data_folder_is_in_the_data_root_or_absolute(recipe_file, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "root"))
    assert recipes.load(recipe_file(), "sample").data_folder() == tmp_path / "root" / "somewhere"
    absolute = recipes.load(recipe_file(), "sample", (f"data.folder={tmp_path}",))
    assert absolute.data_folder() == tmp_path
    monkeypatch.setenv("LABKIT_DATA", "~nobody-here/data")
    with pytest.raises(LabkitError, match="LABKIT_DATA: ~nobody-here/data: there is no such home folder"):
        absolute.data_folder()


# -- Bad keys and values: one of each kind ---------------------------------------------------------


@pytest.mark.parametrize("key, value, says", [  # says: the line, besides key, value and file
    ("data.resize", 256, "unknown key"),  # of the other format
    ("epochs", True, "number"),
    ("epochs", 0, "greater"),
    ("seed", 2**31, "less"),
    ("dataset_sink_mode", 1, "boolean"),
    ("network.name", "resnet51", "resnet50"),
    ("network.stem", "imagenet", "resnet20 has the cifar stem only"),
    ("data", ["folder"], "dictionary"),
    ("data.folder", 5, "string"),
    ("data.format", "tar", "image_folder"),
    ("data.flip", 1.5, "less"),
    ("all_reduce_fusion", [160, 85], "increase"),
    ("schedule.lr_max", math.nan, "finite"),
    ("schedule.warmup_epochs", 3, "3 epochs of warm-up do not fit into 3"),
])  # fmt: skip
def test_bad_value_in_the_file(recipe_file, key, value, says):
    file = recipe_file(**{key.replace(".", "__"): value})
    message = refusal(file)
    assert message.startswith(f"{file}: {key.partition('.')[0]}") and says in message


@pytest.mark.parametrize("key, value, says", [
    ("data.resize", 200, "data.resize: must be at least data.image_size, 224"),
    ("data.crop_scale", [0.1, 0.5, 1.0], "data.crop_scale: must be a smallest and a largest"),
    ("data.crop_scale", [0.5, 1.5], "data.crop_scale.1: must be less"),
    ("data.crop_scale", "0.2,1.0", "data.crop_scale: must be a list like [A, B], not '0.2,1.0'"),
])  # fmt: skip
def test_bad_value_of_an_image_folder(folder_file, key, value, says):
    """The format, by which pydantic chooses the keys, stays out of the line."""
    file = folder_file(**{key.replace(".", "__"): value})
    assert refusal(file).startswith(f"{file}: {says}")


@pytest.mark.parametrize("setting, key, says", [
    ("epochs=", "epochs", "number"),
    ('network={"name": "resnet51"}', "network.name", "resnet50"),
    ("schedule.warmup_epochs=9", "schedule.warmup_epochs", "do not fit"),
])  # fmt: skip
def test_bad_setting_is_named_and_not_the_file(recipe_file, setting, key, says):
    file = recipe_file()
    message = refusal(file, settings=(setting,))
    assert message.startswith(f"--set {setting}: {key}: ")
    assert says in message and str(file) not in message


@pytest.mark.parametrize("setting, says", [
    ("epochs", "key=value"), ("=3", "key=value"), ("schedule..lr_max=3", "key=value"), ("lab=x", "cannot be set"),
    ('data={"batch_size": 8, "batch_size": 16}', "a key occurs twice"),
])  # fmt: skip
def test_setting_that_cannot_be(recipe_file, setting, says):
    message = refusal(recipe_file(), settings=(setting,))
    assert message.startswith(f"--set {setting}: ") and says in message


@pytest.mark.parametrize("key", ["network", "network.name", "data", "data.format", "data.folder", "epochs"])
def test_missing_key(recipe_file, key):
    file = recipe_file(**{key.replace(".", "__"): None})
    assert refusal(file) == f"{file}: {key}: missing"


@pytest.mark.parametrize("setting, meant", [("lr_max=0.1", "schedule.lr_max"), ("max_step=3", "max_steps")])
def test_an_unknown_key_that_is_nearly_a_known_one(recipe_file, setting, meant):
    with pytest.raises(RecipeError, match=rf"unknown key, did you mean {meant}\?$"):
        recipes.load(recipe_file(), "sample", (setting,))


def test_the_polynomial_schedule_replaces_another(recipe_file):
    """Its keys are others, but for lr_max; so are those that a schedule with a warm-up gets in its place."""
    settings = ("schedule.name=polynomial", "schedule.power=2", "schedule.end_epoch=9")
    schedule = recipes.load(recipe_file(), "long", settings).schedule
    assert (schedule.name, schedule.lr_max, schedule.power, schedule.end_epoch) == ("polynomial", 0.2, 2, 9)
    back = recipes.load(recipe_file(), "long", (*settings, "schedule.name=linear", "schedule.lr_init=0.0")).schedule
    assert (back.name, back.lr_max, back.lr_init) == ("linear", 0.2, 0.0)


@pytest.mark.parametrize("settings, message", [
    (("checkpoint_steps=5",), "checkpoint_steps: not with dataset_sink_mode"),
    (("evaluation_steps=5",), "evaluation_steps: not with dataset_sink_mode"),
    (("epochs=1.5",), "epochs: must be a whole number with dataset_sink_mode"),
])  # fmt: skip
def test_what_sink_mode_cannot_do(recipe_file, settings, message):
    assert message in refusal(recipe_file(dataset_sink_mode=True), settings=settings)


def test_a_copy_is_validated_as_well(recipe_file):
    recipe = recipes.load(recipe_file(), "sample")
    assert recipe.model_copy(update={"seed": 7}).seed == 7
    with pytest.raises(ValidationError, match="3 epochs of warm-up do not fit into 3"):
        recipe.model_copy(update={"schedule": recipe.schedule.model_copy(update={"warmup_epochs": 3})})
    with pytest.raises(ValidationError, match="schedul"):
        recipe.model_copy(update={"schedul": recipe.schedule})


# -- Bad files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content, says", [
    ("", "keys and values"),
    ("lab: x\nbase:\n\tepochs: 1\n", "line 3: not valid YAML"),
    ("lab: !!python/object:os.system x", "line 1: not valid YAML"),
    ("lab: x\nbase: {seed: 2024-13-45}\nprofiles: {sample: {}}", "not valid YAML"),  # a date: no YAMLError
    (b"\x89PNG\r\n", "not valid YAML"),
    ("lab: x\nprofiles: {sample: {}}\nepochs: 3", "epochs: unknown key"),
    ("lab: x\nprofiles: {sample: 3}", "profiles.sample: must be a valid dictionary"),
    ("lab: x\nprofiles: {small: {}, big: {}}", "no profile 'sample'; it has small, big"),
])  # fmt: skip
def test_bad_file(tmp_path, content, says):
    file = tmp_path / "recipe.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refusal(file)
    assert message.startswith(str(file)) and says in message


def test_file_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read (Is a directory)"


# -- Resolved recipes -----------------------------------------------------------------------------


def test_dump_writes_every_key_out_and_is_read_again(recipe_file, folder_file, tmp_path):
    kept = tmp_path / "kept.yaml"
    for file, data in ((recipe_file, schema.Cifar10), (folder_file, schema.ImageFolder)):
        settings = ("data.folder=ä=b: c", "checkpoint_steps=7", "loss.smoothing=1e-7")
        recipe = recipes.load(file(), "long", settings)
        kept.write_text(recipe.dump(), encoding="utf-8")
        assert recipes.read_resolved(kept) == recipe
        tree = yaml.safe_load(recipe.dump())
        assert set(tree) == set(schema.Recipe.model_fields) and set(tree["data"]) == set(data.model_fields)


@pytest.mark.parametrize("more, says", [("colour: red\n", "colour: unknown key$"), ("loss: &a\n  smoothing: *a\n", "")])
def test_resolved_recipe_that_is_wrong(recipe_file, tmp_path, more, says):
    """Also one that contains itself: YAML can say so."""
    kept = tmp_path / "kept.yaml"
    kept.write_text(recipes.load(recipe_file(), "sample").dump().replace("loss:\n  smoothing: 0.0\n", "") + more)
    with pytest.raises(RecipeError, match=rf"kept\.yaml: {says}"):
        recipes.read_resolved(kept)


def test_require_same_names_the_first_difference(recipe_file, folder_file):
    kept = recipes.load(recipe_file(), "sample")
    recipes.require_same(kept, recipes.load(recipe_file(), "sample"), Path("run"), ("profile", "schedule", "epochs"))
    with pytest.raises(RecipeError, match="profile is 'sample', not 'long'"):
        recipes.require_same(kept, recipes.load(recipe_file(), "long"), Path("run"), ("profile",))
    other = recipes.load(recipe_file(), "sample", ("schedule.lr_max=0.3", "epochs=5"))
    for keys in (("schedule.lr_max",), ("epochs", "schedule")):  # in the recipe's order
        with pytest.raises(RecipeError, match=r"^run: .*schedule\.lr_max is 0\.1, not 0\.3$"):
            recipes.require_same(kept, other, Path("run"), keys)
    recipes.require_same(kept, other, Path("run"), ("profile", "schedule.lr_init", "sched"))  # what was asked only
    with pytest.raises(RecipeError, match="data.format is 'cifar10', not 'image_folder'"):
        recipes.require_same(kept, recipes.load(folder_file(), "sample"), Path("run"), ("data",))


# -- The labs -------------------------------------------------------------------------------------


def test_every_profile_of_the_labs_is_valid(repo_root):
    for file in (repo_root / "labs").glob("*/recipe.yaml"):
        for profile in yaml.safe_load(file.read_text())["profiles"]:
            assert recipes.load(file, profile).profile == profile


def test_full_is_the_seeds_setting(repo_root):
    full = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "full")
    assert (full.network.name, full.network.stem, full.network.num_classes) == ("resnet50", "imagenet", 10)
    assert (full.data.image_size, full.data.batch_size, full.data.workers, full.epochs) == (224, 32, 8, 90)
    assert (full.data.crop_padding, full.data.flip) == (4, 0.5)
    schedule = full.schedule
    assert (schedule.name, schedule.lr_init, schedule.lr_max) == ("quadratic", 0.01, 0.1)
    assert (schedule.lr_end, schedule.warmup_epochs) == (0.0, 5)


def test_find_by_name_folder_and_file(repo_root, tmp_path, monkeypatch):
    wanted = (repo_root / "labs/cifar10/recipe.yaml").resolve()
    monkeypatch.chdir(tmp_path)
    for given in ("cifar10", wanted.parent, wanted):  # by its name from anywhere
        assert recipes.find(str(given)).resolve() == wanted
    own = tmp_path / "labs" / "cifar10" / "recipe.yaml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert recipes.find("cifar10").resolve() == own  # one's own before labkit's


@pytest.mark.parametrize("lab", ["nolab", "", "../cifar10"])
def test_find_says_what_there_is(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="no lab .* labs here: .*cifar10"):
        recipes.find(lab)
