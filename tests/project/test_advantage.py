"""tests/benchmarks/advantage.py: which setting wins the tuning, and what the bests are judged by. Curves are given."""

import json
from importlib import import_module
from types import SimpleNamespace

import click
import pytest

from labkit.system.environment import REPO
from labkit.training.compare import Curve
from tests.benchmarks import advantage


def curve(*accuracies):
    steps = [10 * (number + 1) for number in range(len(accuracies))]
    return Curve(steps, [float(step) for step in steps], list(accuracies), 0.0, 1000.0)


@pytest.fixture
def contest(tmp_path, monkeypatch):
    """Function that lets sides contest: by side a curve for each setting, and what each seed adds to its accuracies.

    A seed may add by (side, setting) alone; None: the training diverges.
    """

    def contest(baseline, challenger, seeds=(0.0,)):
        curves = {"base": baseline, "new": challenger}

        def run(trial):
            added = seeds[trial.seed - 1]
            added = added if isinstance(added, float) else added.get((trial.side.name, trial.settings["n"]), 0.0)
            ended = [accuracy + added for accuracy in curves[trial.side.name][trial.settings["n"]] if added is not None]
            trial.curve, trial.peak_memory_mb = curve(*ended), 100

        monkeypatch.setattr(advantage.Trial, "run", run)
        sides = (advantage.Side(name, "torch", tuple({"n": n} for n in range(len(c)))) for name, c in curves.items())
        return advantage.contest(*sides, tmp_path, len(seeds))

    return contest


def test_the_first_to_the_target_wins(contest):
    """Not the one that ends highest."""
    found = contest([(0.3, 0.4, 0.5), (0.5, 0.6, 0.7)], [(0.5, 0.6, 0.9), (0.6, 0.7, 0.7), (0.1, 0.2, 0.3)])
    assert found["target"] == 0.7 and found["chosen"] == {"base": {"n": 1}, "new": {"n": 1}}
    assert [row["steps"] for row in found["settings"]] == [[30, 30, 30], [20, 20, 20]]
    assert [len(trial["accuracies"]) for trial in found["trials"]] == [3] * 5


def test_a_shorter_schedule_of_the_baseline_counts(contest):
    """It ends lower than the best, but comes to its median at the end sooner, in most seeds."""
    short = {("base", 1): 0.02}
    found = contest([(0.3, 0.5, 0.7), (0.4, 0.7)], [(0.1, 0.2, 0.3, 0.7)], seeds=(0.0, short, short))
    assert found["target"] == pytest.approx(0.72) and found["chosen"]["base"] == {"n": 1}
    lone = {("base", 1): -0.1}
    found = contest([(0.3, 0.5, 0.7), (0.4, 0.7)], [(0.1, 0.2, 0.3, 0.7)], seeds=(0.0, lone, lone))
    assert found["target"] == pytest.approx(0.7) and found["chosen"]["base"] == {"n": 0}
    third = contest([(0.3, 0.8), (0.3, 0.7, 0.75), (0.3, 0.7)], [(0.8,)], seeds=(0.0, 0.0))
    assert {(trial["settings"]["n"]) for trial in third["finals"] if trial["side"] == "base"} == {0, 1}


def test_none_reaches_the_target(contest):
    """The nearest is chosen, and the row says so."""
    found = contest([(0.5, 0.7)], [(0.5, 0.6), (0.65, 0.6)])
    assert found["chosen"]["new"] == {"n": 1}
    assert found["settings"][1]["reached"] == 0 and found["settings"][1]["steps"] is None


def test_a_diverged_trial_never_wins(contest):
    found = contest([(), (0.5, 0.6)], [(0.6, 0.7), ()])
    assert found["chosen"] == {"base": {"n": 1}, "new": {"n": 0}} and found["trials"][0]["accuracies"] == []


def test_seeds_are_judged_by_their_median(contest):
    found = contest([(0.5, 0.6)], [(0.65, 0.66)], seeds=(0.0, 0.1, -0.1))
    assert found["target"] == pytest.approx(0.6)
    assert found["settings"][1]["runs"] == 3 and found["settings"][1]["reached"] == 2


def test_a_baseline_that_one_seed_flattered(contest):
    """Its second best meets the other seeds as well, and goes on where its median is higher."""
    lucky = {("base", 0): -0.3}
    found = contest([(0.5, 0.7), (0.5, 0.65), (0.5, 0.6)], [(0.65, 0.66)], seeds=(0.0, lucky, lucky))
    assert found["chosen"]["base"] == {"n": 1} and found["target"] == pytest.approx(0.65)
    trained = {(trial["side"], trial["settings"]["n"], trial["seed"]) for trial in found["finals"]}
    assert trained == {(side, n, seed) for side, n in (("base", 0), ("base", 1), ("new", 0)) for seed in (1, 2, 3)}


def test_a_best_setting_that_diverges_later(contest):
    """It counts as a seed that does not reach the target, on either side."""
    found = contest([(0.5, 0.6)], [(0.65, 0.66)], seeds=(0.0, {("new", 0): None}))
    assert [(row["reached"], row["runs"]) for row in found["settings"]] == [(2, 2), (1, 2)]
    assert found["finals"][-1]["accuracies"] == []
    diverges = {("base", 0): None}
    found = contest([(0.5, 0.7), (0.5, 0.6)], [(0.65, 0.66)], seeds=(0.0, diverges, diverges))
    assert found["target"] == 0.6 and found["chosen"]["base"] == {"n": 1}


def test_a_chapter_shows_a_diverged_seed(contest, monkeypatch, capsys):
    """With no line in the figure, and as 0% in the table of settings."""
    monkeypatch.syspath_prepend(str(REPO / "book" / "3-thor"))
    races = import_module("races")
    found = contest([(0.5, 0.6)], [(0.65, 0.66)], seeds=(0.0, {("new", 0): None}))
    lines = [len(axis.lines) for axis in races.draw(found).axes]
    assert lines == [2 + 1 + 1 + 1 + 1] * 2  # two seeds and a median, one seed and its median, the target
    capsys.readouterr()
    races.tried(found)
    assert capsys.readouterr().out.splitlines()[2].endswith("33.0 (0.0 to 66.0)")


def test_trials_are_trained_once(pytorch, tmp_path, monkeypatch, write_noise):
    """In PyTorch, on noise: one that ends, one that diverges, and one whose program fails, each in its own way."""
    write_noise(tmp_path / "cifar-10-batches-bin")
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    side = advantage.Side("sgd", "torch", ())
    common = {"batch_size": 40, "epochs": 2, "warmup_epochs": 0.2}
    ended, diverged, wrong = (
        advantage.Trial(side, {**common, **more}, 1, tmp_path) for more in ({"lr": 0.01}, {"lr": 1e30}, {"epochs": 0.1})
    )
    (ended.path / "left").mkdir(parents=True)  # of a training that was cut off
    ended.run()
    assert ended.curve.steps == [6, 10] and 0 <= ended.end <= 1 and not (ended.path / "left").exists()
    assert len(ended.record()["seconds"]) == 2 and ended.peak_memory_mb > 0
    diverged.run()
    assert diverged.curve.steps == [] and diverged.end == 0
    with pytest.raises(click.ClickException, match=rf"{wrong.path.name}: the training failed, see .*log"):
        wrong.run()
    monkeypatch.setattr(advantage.Trial, "_train", None)
    again = advantage.Trial(side, ended.settings, 1, tmp_path)
    again.run()
    assert again.record() == ended.record()


def test_augmented_images_are_windows_of_the_padded_one(pytorch):
    """Every pixel comes from the image or the black border; some images are mirrored, some moved."""
    import torch

    from tests.benchmarks import kfac

    images = torch.arange(1, 3 * 32 * 32 + 1).float().reshape(1, 3, 32, 32).repeat(200, 1, 1, 1)
    found = kfac.augmented(images, torch.zeros(1, 3, 1, 1), torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images[:1], (4, 4, 4, 4))
    windows = [padded[0, :, y : y + 32, x : x + 32] for y in range(9) for x in range(9)]

    def among(image):
        return any(torch.equal(image, window) for window in windows)

    assert {(among(image), among(image.flip(2))) for image in found} == {(True, False), (False, True)}


def test_the_second_network_takes_over_what_won():
    """Both sides' settings, unchanged but for network and batch; without them, what to run first."""
    chosen = {"momentum": {"epochs": 5}, "thor": {"schedule.lr_max": 0.8}}
    baseline, challenger = advantage.sides(advantage.OTHER, {"THOR": {"chosen": chosen}})
    assert (baseline.program, challenger.program) == ("laptop-momentum", "laptop")
    other = {"network.name": "resnet20", "data.batch_size": 1024}
    assert (baseline.grid, challenger.grid) == (({"epochs": 5, **other},), ({"schedule.lr_max": 0.8, **other},))
    with pytest.raises(click.UsageError, match="the contest THOR: that one first"):
        advantage.sides(advantage.OTHER, {})


def test_all_trials_of_a_side_diverge(contest):
    with pytest.raises(click.ClickException, match="^new: all trials diverged"):
        contest([(0.5, 0.7)], [(0.5,), (0.6,)], seeds=({("new", 0): None, ("new", 1): None},))


def test_a_folder_has_the_trials_of_one_commit(tmp_path):
    """What else provenance has does not matter."""
    made = {"commit": "a", "dirty": False, "dataset": {"sha256": "0"}, "cores": 2}
    for other in (made, {**made, "cores": 4}):
        advantage.require_same_code(tmp_path, other)
    for other in ({"commit": "b"}, {"dataset": {"sha256": "1"}}):
        with pytest.raises(click.UsageError, match="name another folder"):
            advantage.require_same_code(tmp_path, {**made, **other})
    for changed in (True, None):  # None: nobody knows
        with pytest.raises(click.UsageError, match="must come from a commit: files of this checkout differ"):
            advantage.require_same_code(tmp_path / "new", {**made, "dirty": changed})
    assert not (tmp_path / "new").exists()


def test_a_second_call_resumes(tmp_path, monkeypatch):
    """After the first contest, with its result; a contest that is not asked for stays as it was recorded."""
    made = {"commit": "a", "dirty": False, "dataset": {}, "versions": {}}
    monkeypatch.setattr(advantage.provenance, "collect", lambda dataset: made)
    monkeypatch.setattr(advantage.cifar10_files, "check", lambda folder: SimpleNamespace(dataset={}))
    recorded, done = advantage.RECORDED.read_bytes(), []

    def contest(baseline, challenger, out, seeds):
        done.append((out.name, seeds, baseline.grid))
        return {"chosen": {"momentum": {"epochs": len(done)}, "thor": {}}}

    monkeypatch.setattr(advantage, "contest", contest)
    for name, seeds in (("THOR", None), (advantage.OTHER, None), (advantage.OTHER, 4)):
        advantage.main.callback(tmp_path, (name,), seeds)
    written = json.loads((tmp_path / "advantage.json").read_text())
    assert [one[:2] for one in done] == [("THOR", 5), (advantage.OTHER, 1), (advantage.OTHER, 4)]
    assert done[1][2][0]["epochs"] == 1
    assert written["THOR"]["provenance"] == written[advantage.OTHER]["provenance"] == made
    assert made["versions"].keys() == {"torch", "asdfghjkl"}
    assert written["K-FAC"] == json.loads(recorded)["K-FAC"] and advantage.RECORDED.read_bytes() == recorded


@pytest.mark.parametrize("name", advantage.NAMES)
def test_the_recorded_race_had_these_trials_and_seeds(name):
    recorded = json.loads(advantage.RECORDED.read_text(encoding="utf-8"))
    for side in advantage.sides(name, recorded):
        tried = [trial["settings"] for trial in recorded[name]["trials"] if trial["side"] == side.name]
        assert tried == list(side.grid)
    assert {trial["seed"] for trial in recorded[name]["finals"]} == set(range(1, advantage.SEEDS[name] + 1))
