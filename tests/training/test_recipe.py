"""labkit.training.recipes: what is accepted, and that every refusal is one line naming the key and the file."""

import json
import math
from pathlib import Path

import pytest
import yaml

from labkit.system.errors import LabkitError
from labkit.training import recipes, schema
from labkit.training.recipes import RecipeError

BASE = {
    "lab": "mine",
    "base": {
        "network": {"name": "resnet20"},
        "data": {"folder": "somewhere", "batch_size": 8},
        "schedule": {"lr_init": 0.01, "lr_max": 0.1},
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
            if value is None:
                del place[last]
            else:
                place[last] = value
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
    assert len(message.splitlines()) == 1
    return message


def test_errors_are_labkits_own():
    assert issubclass(RecipeError, LabkitError)


# -- What is accepted -----------------------------------------------------------------------------


def test_profile_over_base_and_setting_over_both(recipe_file):
    file = recipe_file()
    assert recipes.load(file, "sample").epochs == 3
    long = recipes.load(file, "long")
    assert (long.epochs, long.schedule.lr_max, long.schedule.lr_init) == (30, 0.2, 0.01)
    assert (long.lab, long.profile) == ("mine", "long")
    both = recipes.load(file, "long", ("schedule.lr_max=0.3", "epochs=31", "epochs=32"))
    assert (both.epochs, both.schedule.lr_max, both.schedule.lr_init) == (32, 0.3, 0.01)


def test_defaults(recipe_file):
    recipe = recipes.load(recipe_file(), "sample")
    assert (recipe.network.stem, recipe.network.num_classes) == ("cifar", 10)
    assert (recipe.network.init, recipe.amp_level, recipe.loss_scale) == ("torchvision", "O0", 1.0)
    assert (recipe.data.format, recipe.data.crop_padding, recipe.data.flip, recipe.data.image_size) == (
        "cifar10", 4, 0.5, 32,
    )  # fmt: skip
    optimizer = recipe.optimizer
    assert (optimizer.momentum, optimizer.weight_decay, optimizer.clip_norm) == (0.9, 1e-4, None)
    assert (recipe.loss.smoothing, recipe.schedule.name, recipe.schedule.lr_end) == (0.0, "quadratic", 0.0)
    assert (recipe.dataset_sink_mode, recipe.checkpoint_steps) == (False, None)


def test_defaults_of_an_image_folder(folder_file):
    data = recipes.load(folder_file(), "sample").data
    assert (data.image_size, data.resize, data.crop_scale, data.flip) == (224, 256, [0.08, 1.0], 0.5)
    assert (data.route, data.bad_images, data.workers, data.eval_batch_size) == ("fast", "error", 1, 250)


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "+1e-4", "1.e-4", "0.1e-3"])
def test_numbers_with_exponents_are_numbers(recipe_file, text):
    """YAML 1.1 reads 1e-4 as text."""
    assert recipes.load(recipe_file(), "sample", (f"optimizer.weight_decay={text}",)).optimizer.weight_decay == 1e-4
    assert recipes.load(recipe_file(optimizer__weight_decay=text), "sample").optimizer.weight_decay == 1e-4


@pytest.mark.parametrize(
    "setting, key, value",
    [
        ("network.name=resnet50", "network", "resnet50"),
        ("network.fast_gradient=true", "network", True),
        ("data.folder=a=b", "data", "a=b"),
        ("schedule.lr_max=1", "schedule", 1.0),
    ],
)
def test_settings_of_every_type(recipe_file, setting, key, value):
    part = recipes.load(recipe_file(), "sample", (setting,)).model_dump()[key]
    assert part[setting.split("=")[0].split(".")[1]] == value


def test_checkpoint_steps_can_be_taken_back(recipe_file):
    file = recipe_file(checkpoint_steps=10)
    assert recipes.load(file, "sample").checkpoint_steps == 10
    assert recipes.load(file, "sample", ("checkpoint_steps=null",)).checkpoint_steps is None


def test_data_folder_is_in_the_data_root_or_absolute(recipe_file, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "root"))
    assert recipes.load(recipe_file(), "sample").data_folder() == tmp_path / "root" / "somewhere"
    absolute = recipes.load(recipe_file(), "sample", (f"data.folder={tmp_path}",))
    assert absolute.data_folder() == tmp_path


def test_a_recipe_cannot_be_changed(recipe_file):
    recipe = recipes.load(recipe_file(), "sample")
    with pytest.raises(ValueError, match="frozen"):
        recipe.epochs = 5


# -- Bad keys and values --------------------------------------------------------------------------

BAD_VALUES = [
    # key, value, what the line says besides key, value and file
    ("colour", "red", "unknown key"),
    ("data.colour", "red", "unknown key"),
    ("optimizer.dampening", 0.1, "unknown key"),
    ("epochs", "three", "integer"),
    ("epochs", 1.5, "integer"),
    ("epochs", True, "integer"),
    ("epochs", 0, "greater"),
    ("epochs", -3, "greater"),
    ("epochs", "1e3", "integer"),
    ("epochs", [3], "integer"),
    ("seed", -1, "greater"),
    ("seed", 2**31, "less"),
    ("dataset_sink_mode", 1, "boolean"),
    ("dataset_sink_mode", "yes", "boolean"),
    ("checkpoint_steps", 0, "greater"),
    ("network", "resnet50", "dictionary"),
    ("network.name", "resnet51", "resnet50"),
    ("network.name", 50, "resnet50"),
    ("network.stem", "cifar10", "cifar"),
    ("network.num_classes", 1, "greater"),
    ("data.folder", 5, "string"),
    ("data.batch_size", 0, "greater"),
    ("data.batch_size", -1, "greater"),
    ("data.batch_size", False, "integer"),
    ("data.eval_batch_size", 0, "greater"),
    ("data.image_size", 0, "greater"),
    ("data.crop_padding", -1, "greater"),
    ("data.flip", 1.5, "less"),
    ("data.flip", -0.5, "greater"),
    ("data.flip", True, "number"),
    ("data.workers", 0, "greater"),
    ("loss.smoothing", 1.0, "less"),
    ("loss.smoothing", -0.1, "greater"),
    ("optimizer.name", "adam", "momentum"),
    ("optimizer.momentum", 1.0, "less"),
    ("optimizer.weight_decay", -1e-4, "greater"),
    ("optimizer.weight_decay", True, "number"),
    ("optimizer.weight_decay", "small", "number"),
    ("optimizer.weight_decay", "0x10", "number"),
    ("network.fast_gradient", "true", "boolean"),
    ("optimizer.clip_norm", 0, "greater"),
    ("optimizer.clip_norm", -1.0, "greater"),
    ("optimizer.clip_norm", math.inf, "finite"),
    ("optimizer.clip_norm", "short", "number"),
    ("network.init", "he", "guide"),
    ("amp_level", "O4", "O3"),
    ("amp_level", 2, "O2"),
    ("loss_scale", 0.5, "greater"),
    ("loss_scale", True, "number"),
    ("data", "cifar10", "dictionary"),
    ("data", ["folder"], "dictionary"),
    ("data.format", "tar", "image_folder"),
    ("data.format", ["cifar10"], "image_folder"),
    ("data.format", True, "image_folder"),
    ("data.cifar10", {}, "unknown key"),
    ("data.resize", 256, "unknown key"),
    ("data.route", "exact", "unknown key"),
    ("schedule.name", "step", "cosine"),
    ("schedule.lr_max", 0, "greater"),
    ("schedule.lr_max", -0.1, "greater"),
    ("schedule.lr_max", math.nan, "finite"),
    ("schedule.lr_max", math.inf, "finite"),
    ("schedule.lr_max", "1e999", "finite"),
    ("schedule.lr_init", -math.inf, "finite|greater"),
    ("schedule.lr_init", [0.1], "number"),
    ("schedule.warmup_epochs", -1, "greater"),
]


@pytest.mark.parametrize("key, value, says", BAD_VALUES)
def test_bad_value_in_the_file(recipe_file, key, value, says):
    file = recipe_file(**{key.replace(".", "__"): value})
    message = refusal(file)
    assert message.startswith(f"{file}: {key}: ")
    assert any(word in message for word in says.split("|"))
    assert says == "unknown key" or repr(value) in message or "1e999" in str(value)


BAD_FOLDER_VALUES = [
    ("data.crop_padding", 4, "unknown key"),
    ("data.image_folder", {}, "unknown key"),
    ("data.batch_size", 0, "greater"),
    ("data.image_size", 0, "greater"),
    ("data.resize", 0, "greater"),
    ("data.flip", 2, "less"),
    ("data.resize", 200, "at least data.image_size, 224"),
    ("data.route", "slow", "exact"),
    ("data.bad_images", "ignore", "skip"),
    ("data.crop_scale", 0.5, "list"),
    ("data.crop_scale", [0.5], "smallest"),
    ("data.crop_scale", [0.1, 0.5, 1.0], "smallest"),
    ("data.crop_scale", [1.0, 0.5], "smallest"),
]


@pytest.mark.parametrize("key, value, says", BAD_FOLDER_VALUES)
def test_bad_value_of_an_image_folder(folder_file, key, value, says):
    """The format, by which pydantic chooses the keys, stays out of the line."""
    file = folder_file(**{key.replace(".", "__"): value})
    message = refusal(file)
    assert message.startswith(f"{file}: {key}: ")
    assert says in message and (says == "unknown key" or repr(value) in message)


@pytest.mark.parametrize("value, place", [([0.0, 1.0], 0), ([0.5, 1.5], 1), (["small", 1.0], 0)])
def test_bad_share_of_a_crop(folder_file, value, place):
    file = folder_file(data__crop_scale=value)
    assert refusal(file).startswith(f"{file}: data.crop_scale.{place}: ")
    setting = f"data.crop_scale={json.dumps(value)}"
    assert refusal(folder_file(), settings=(setting,)).startswith(f"--set {setting}: data.crop_scale.{place}: ")


@pytest.mark.parametrize("key", ["data.folder", "data.batch_size"])
def test_missing_key_of_an_image_folder(folder_file, key):
    file = folder_file(**{key.replace(".", "__"): None})
    assert refusal(file) == f"{file}: {key}: missing"


SETTINGS = [
    ("colour=red", "colour", "unknown key"),
    ("data.colour=red", "data.colour", "unknown key"),
    ("epochs=three", "epochs", "integer"),
    ("epochs=true", "epochs", "integer"),
    ("epochs=1.5", "epochs", "integer"),
    ("epochs=", "epochs", "integer"),
    ("epochs=-1", "epochs", "greater"),
    ("schedule.lr_max=NaN", "schedule.lr_max", "finite"),
    ("schedule.lr_max=Infinity", "schedule.lr_max", "finite"),
    ("network.fast_gradient=yes", "network.fast_gradient", "boolean"),
    ("network=resnet50", "network", "dictionary"),
    ('network={"name": "resnet51"}', "network.name", "resnet50"),
    ("data.format=tar", "data.format", "image_folder"),
    ("data.resize=256", "data.resize", "unknown key"),
    ("optimizer.clip_norm=0", "optimizer.clip_norm", "greater"),
    ("amp_level=fast", "amp_level", "O3"),
    ("seed=" + 5000 * "9", "seed", "integer"),  # more digits than Python reads
]


@pytest.mark.parametrize("setting, key, says", SETTINGS)
def test_bad_setting_is_named_and_not_the_file(recipe_file, setting, key, says):
    file = recipe_file()
    message = refusal(file, settings=(setting,))
    assert message.startswith(f"--set {setting}: {key}: ")
    assert says in message
    assert str(file) not in message


@pytest.mark.parametrize("setting", ["epochs", "", "=3", ".epochs=3", "schedule.=3", "schedule..lr_max=3"])
def test_setting_that_is_not_key_equals_value(recipe_file, setting):
    message = refusal(recipe_file(), settings=(setting,))
    assert message.startswith(f"--set {setting}: ")
    assert "key=value" in message


def test_setting_below_a_plain_value(recipe_file):
    """epochs is a number: it has no key `all`."""
    assert "epochs" in refusal(recipe_file(), settings=("epochs.all=3",))


@pytest.mark.parametrize(
    "key", ["network", "network.name", "data", "data.folder", "data.batch_size", "schedule.lr_init", "epochs"]
)
def test_missing_key(recipe_file, key):
    file = recipe_file(**{key.replace(".", "__"): None})
    assert refusal(file) == f"{file}: {key}: missing"


def test_warm_up_as_long_as_the_training(recipe_file):
    file = recipe_file(schedule__warmup_epochs=3)
    message = refusal(file)
    assert message.startswith(f"{file}: schedule.warmup_epochs: 3")
    recipes.load(recipe_file(schedule__warmup_epochs=2.5), "sample")


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "resnet32", "resnet56"])
def test_cifar_network_with_the_imagenet_stem(recipe_file, name):
    file = recipe_file(network__name=name, network__stem="imagenet")
    message = refusal(file)
    assert message.startswith(f"{file}: network.stem: {name}")
    recipes.load(recipe_file(network__name="resnet18", network__stem="imagenet"), "sample")


# -- Bad files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, says",
    [
        ("", "keys and values"),
        ("# nothing\n", "keys and values"),
        ("- a\n- b\n", "keys and values"),
        ("just words", "keys and values"),
        ("lab: [1, 2", "line 1: not valid YAML"),
        ("lab: x\nbase: {a: 1\nprofiles: {}", "line 3: not valid YAML"),
        ("lab: x\nbase:\n\tepochs: 1\n", "line 3: not valid YAML"),
        ("lab: !!python/object:os.system x", "line 1: not valid YAML"),
        ("lab: x\nprofiles: {sample: {}}\nepochs: 3", "unknown key 'epochs'"),
        ("lab: x\n1: y\nepochs: 3\nprofiles: {sample: {}}", "unknown key"),
        ("lab: x\nbase: {}", "profiles: missing or empty"),
        ("lab: x\nprofiles: {}", "profiles: missing or empty"),
        ("lab: x\nprofiles: [sample]", "profiles: missing or empty"),
        ("lab: x\nprofiles: {sample: 3}", "profiles.sample: must hold keys"),
        ("lab: x\nbase: 3\nprofiles: {sample: {}}", "base: must hold keys"),
        ("lab: x\nprofiles: {small: {}, big: {}}", "no profile 'sample'; it has small, big"),
        ("lab: x\nprofiles: {1: {}, 2: {}}", "no profile 'sample'; it has 1, 2"),
        ("profiles: {sample: {}}", "lab: "),
        ("lab: x\nbase: {1: 2}\nprofiles: {sample: {}}", "1"),
    ],
)
def test_bad_file(tmp_path, content, says):
    file = tmp_path / "recipe.yaml"
    file.write_text(content)
    message = refusal(file)
    assert message.startswith(str(file))
    assert says in message


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01", b"lab: \x00x\n", bytes(range(256)), b"\x89PNG\r\n"])
def test_file_that_is_not_text(tmp_path, content):
    file = tmp_path / "recipe.yaml"
    file.write_bytes(content)
    message = refusal(file)
    assert message.startswith(str(file))
    assert "not valid YAML" in message


@pytest.mark.parametrize("value", ["2024-13-45", "2024-02-30T25:61:00", "!!int x"])
def test_value_that_yaml_cannot_make(tmp_path, value):
    """A date that is none is no YAMLError but a ValueError."""
    file = tmp_path / "recipe.yaml"
    file.write_text(f"lab: x\nbase: {{seed: {value}}}\nprofiles: {{sample: {{}}}}\n")
    assert refusal(file).startswith(f"{file}")


def test_file_that_is_a_folder(tmp_path):
    (tmp_path / "recipe.yaml").mkdir()
    assert refusal(tmp_path / "recipe.yaml") == f"{tmp_path / 'recipe.yaml'}: cannot be read (Is a directory)"


def test_file_that_is_not_there(tmp_path):
    assert refusal(tmp_path / "none.yaml") == f"{tmp_path / 'none.yaml'}: no such file"


def test_unknown_profile(recipe_file):
    file = recipe_file()
    assert refusal(file, "huge") == f"{file}: no profile 'huge'; it has long, sample"


# -- Resolved recipes -----------------------------------------------------------------------------


def test_dump_and_read_resolved_is_the_identity(recipe_file, tmp_path):
    settings = ("optimizer.weight_decay=1e-7", "data.folder=ä b: c", "checkpoint_steps=7", "network.fast_gradient=true")
    recipe = recipes.load(recipe_file(), "long", settings)
    kept = tmp_path / "kept.yaml"
    kept.write_text(recipe.dump(), encoding="utf-8")
    assert recipes.read_resolved(kept) == recipe
    assert recipe.optimizer.weight_decay == 1e-7
    assert recipe.data.folder == "ä b: c"


def test_dump_writes_every_key_out(recipe_file):
    recipe = recipes.load(recipe_file(), "sample")
    tree = yaml.safe_load(recipe.dump())
    assert set(tree) == set(schema.Recipe.model_fields)
    assert set(tree["data"]) == set(schema.Cifar10.model_fields)


def test_image_folder_and_back(folder_file, tmp_path):
    settings = ("data.crop_scale=[0.25, 1]", "optimizer.clip_norm=2", "amp_level=O2", "loss_scale=1024")
    recipe = recipes.load(folder_file(), "sample", settings)
    kept = tmp_path / "kept.yaml"
    kept.write_text(recipe.dump())
    assert recipes.read_resolved(kept) == recipe
    assert (recipe.data.crop_scale, recipe.optimizer.clip_norm) == ([0.25, 1.0], 2.0)
    assert set(yaml.safe_load(recipe.dump())["data"]) == set(schema.ImageFolder.model_fields)


def test_a_recipe_of_before_there_were_formats(recipe_file, tmp_path):
    """A Run that was recorded then reads as one of CIFAR-10's layout, with today's defaults."""
    recipe = recipes.load(recipe_file(), "sample")
    tree = recipe.model_dump()
    for part, key in (("data", "format"), ("network", "init"), ("optimizer", "clip_norm")):
        del tree[part][key]
    del tree["amp_level"], tree["loss_scale"]
    kept = tmp_path / "kept.yaml"
    kept.write_text(yaml.safe_dump(tree))
    assert recipes.read_resolved(kept) == recipe


# -- Older names of keys --------------------------------------------------------------------------


@pytest.fixture
def unreported():
    """As in a new process: no older name has been reported yet."""
    recipes._report.cache_clear()


OLDER = {"sink": "dataset_sink_mode", "rival": "baseline", "optimizer.factor_average": "optimizer.factor_ema"}


def test_older_keys_of_a_file_are_read_and_reported_once(recipe_file, capsys, unreported):
    """In the base and in a profile; read again, nothing more is said."""
    file = recipe_file(optimizer__name="thor", optimizer__factor_average=0.5, rival="long", sink=False)
    for _ in range(2):
        recipe = recipes.load(file, "sample")
        assert (recipe.optimizer.factor_ema, recipe.baseline, recipe.dataset_sink_mode) == (0.5, "long", False)
    found = capsys.readouterr().err.splitlines()
    assert sorted(found) == sorted(f"{file}: {old} is now called {new}" for old, new in OLDER.items())
    tree = yaml.safe_load(recipe.dump())
    assert tree["baseline"] == "long" and not {"sink", "rival"} & set(tree)


def test_older_key_of_a_profile(tmp_path, recipe_file, capsys, unreported):
    tree = yaml.safe_load(recipe_file().read_text())
    tree["profiles"]["long"]["sink"] = True
    file = tmp_path / "profile.yaml"
    file.write_text(yaml.safe_dump(tree))
    assert recipes.load(file, "sample").dataset_sink_mode is False and capsys.readouterr().err == ""
    assert recipes.load(file, "long").dataset_sink_mode is True
    assert capsys.readouterr().err == f"{file}: sink is now called dataset_sink_mode\n"


@pytest.mark.parametrize("setting, key, value", [
    ("sink=true", "dataset_sink_mode", True), ("rival=long", "baseline", "long"), ("rival=null", "baseline", None),
])  # fmt: skip
def test_older_key_of_a_setting(recipe_file, capsys, unreported, setting, key, value):
    file = recipe_file(baseline="sample")
    assert recipes.load(file, "sample", (setting,)).model_dump()[key] == value
    old = setting.partition("=")[0]
    assert capsys.readouterr().err == f"--set {setting}: {old} is now called {key}\n"
    assert recipes.key_of(setting) == key and recipes.key_of("epochs=3") == "epochs"


def test_older_key_inside_a_setting(recipe_file, capsys, unreported):
    setting = 'optimizer={"name": "thor", "factor_average": 0.25}'
    assert recipes.load(recipe_file(), "sample", (setting,)).optimizer.factor_ema == 0.25
    assert "optimizer.factor_average is now called optimizer.factor_ema" in capsys.readouterr().err


def test_a_later_setting_wins_by_whatever_name(recipe_file):
    assert recipes.load(recipe_file(), "sample", ("sink=true", "dataset_sink_mode=false")).dataset_sink_mode is False
    assert recipes.load(recipe_file(), "sample", ("dataset_sink_mode=false", "sink=true")).dataset_sink_mode is True


def test_wrong_value_under_an_older_key(recipe_file):
    message = refusal(recipe_file(), settings=("sink=maybe",))
    assert message.startswith("--set sink=maybe: dataset_sink_mode: ") and "boolean" in message


def test_both_names_in_one_place(recipe_file):
    file = recipe_file(sink=True, dataset_sink_mode=False)
    assert refusal(file).startswith(f"{file}: sink: unknown key")


def test_recipe_of_an_older_run_is_read_without_a_word(recipe_file, tmp_path, capsys, unreported):
    settings = ('optimizer={"name": "thor", "factor_ema": 0.7}', "baseline=long")
    recipe = recipes.load(recipe_file(), "sample", settings)
    text = recipe.dump()
    for old, new in OLDER.items():
        old, new = old.rpartition(".")[2], new.rpartition(".")[2]
        assert f"{new}:" in text
        text = text.replace(f"{new}:", f"{old}:")
    kept = tmp_path / "kept.yaml"
    kept.write_text(text)
    assert recipes.read_resolved(kept) == recipe
    assert capsys.readouterr().err == ""


def test_resolved_recipe_that_contains_itself(tmp_path):
    """YAML can say so; it is refused in a line, whatever its keys."""
    kept = tmp_path / "kept.yaml"
    kept.write_text("optimizer: &a\n  optimizer: *a\n")
    with pytest.raises(RecipeError, match="kept"):
        recipes.read_resolved(kept)


def test_resolved_recipe_with_a_wrong_key(recipe_file, tmp_path):
    kept = tmp_path / "kept.yaml"
    kept.write_text(recipes.load(recipe_file(), "sample").dump() + "colour: red\n")
    with pytest.raises(RecipeError, match=r"kept\.yaml: colour: unknown key$"):
        recipes.read_resolved(kept)


def test_require_same_names_the_first_difference(recipe_file):
    kept = recipes.load(recipe_file(), "sample")
    recipes.require_same(kept, recipes.load(recipe_file(), "sample"), Path("run"), ("profile", "schedule", "epochs"))
    other = recipes.load(recipe_file(), "sample", ("schedule.lr_max=0.3", "epochs=5"))
    with pytest.raises(RecipeError, match="profile is 'sample', not 'long'"):
        recipes.require_same(kept, recipes.load(recipe_file(), "long"), Path("run"), ("profile",))
    for keys in (("schedule.lr_max",), ("epochs", "schedule")):  # in the recipe's order
        with pytest.raises(RecipeError, match=r"^run: .*schedule\.lr_max is 0\.1, not 0\.3$"):
            recipes.require_same(kept, other, Path("run"), keys)


def test_require_same_with_another_format(recipe_file, folder_file):
    """Its keys are other keys, too."""
    kept = recipes.load(recipe_file(), "sample")
    asked = recipes.load(folder_file(), "sample")
    with pytest.raises(RecipeError, match="data.format is 'cifar10', not 'image_folder'"):
        recipes.require_same(kept, asked, Path("run"), ("data",))
    with pytest.raises(RecipeError, match="data.crop_padding is 4, not None"):
        recipes.require_same(kept, asked, Path("run"), ("data.crop_padding",))


def test_require_same_looks_at_what_was_asked_only(recipe_file):
    kept = recipes.load(recipe_file(), "sample", ("schedule.lr_max=0.3",))
    asked = recipes.load(recipe_file(), "sample", ("epochs=3",))
    recipes.require_same(kept, asked, Path("run"), ("profile", "epochs", "schedule.lr_init", "sched"))
    recipes.require_same(kept, asked, Path("run"), ())


# -- The labs -------------------------------------------------------------------------------------


def test_every_profile_of_the_labs_is_valid(repo_root):
    for file in (repo_root / "labs").glob("*/recipe.yaml"):
        for profile in yaml.safe_load(file.read_text())["profiles"]:
            assert recipes.load(file, profile).profile == profile
    assert set(yaml.safe_load((repo_root / "labs/cifar10/recipe.yaml").read_text())["profiles"]) == {
        "sample", "laptop", "full",
    }  # fmt: skip


def test_full_is_the_seeds_setting(repo_root):
    full = recipes.load(repo_root / "labs/cifar10/recipe.yaml", "full")
    assert (full.network.name, full.network.stem, full.network.num_classes) == ("resnet50", "imagenet", 10)
    assert (full.data.image_size, full.data.batch_size, full.data.workers, full.epochs) == (224, 32, 8, 90)
    assert (full.data.crop_padding, full.data.flip) == (4, 0.5)
    schedule = full.schedule
    assert (schedule.name, schedule.lr_init, schedule.lr_max, schedule.lr_end, schedule.warmup_epochs) == (
        "quadratic", 0.01, 0.1, 0.0, 5,
    )  # fmt: skip


def test_sample_and_laptop(repo_root):
    file = repo_root / "labs/cifar10/recipe.yaml"
    sample, laptop = recipes.load(file, "sample"), recipes.load(file, "laptop")
    assert sample.data.folder.startswith("sample/") and sample.data.flip == 0.0
    assert laptop.data.folder == "cifar-10-batches-bin"
    assert laptop.network.name == "resnet20" and laptop.epochs >= 10


def test_find_by_name_folder_and_file(repo_root, tmp_path, monkeypatch):
    wanted = (repo_root / "labs/cifar10/recipe.yaml").resolve()
    monkeypatch.chdir(tmp_path)  # by its name from anywhere
    assert recipes.find("cifar10").resolve() == wanted
    assert recipes.find(str(wanted.parent)) == wanted
    assert recipes.find(str(wanted)) == wanted
    own = tmp_path / "labs" / "cifar10" / "recipe.yaml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert recipes.find("cifar10").resolve() == own  # one's own before labkit's


@pytest.mark.parametrize("lab", ["nolab", "", "labs", "recipe.yaml", "../cifar10"])
def test_find_says_what_there_is(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="no lab .* labs here: .*cifar10") as caught:
        recipes.find(lab)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "setting, meant",
    [("lr_max=0.1", "schedule.lr_max"), ("schedule.lr_mx=0.1", "schedule.lr_max"), ("max_step=3", "max_steps"),
     ("batch_size=3", "data.batch_size"), ("crop_scal=3", "data.crop_scale"), ("optimizer.lr=1", "schedule.lr_max")],
)
def test_an_unknown_key_that_is_nearly_a_known_one(recipe_file, setting, meant):
    with pytest.raises(RecipeError, match=rf"unknown key, did you mean {meant}\?$"):
        recipes.load(recipe_file(), "sample", (setting,))
