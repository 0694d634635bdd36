"""The trace rule by itself, in a Preconditioner, over a checkpoint; factors that are not finite; wrong settings."""

import warnings

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from small import tensor, values

from labkit.thor import TRACE_RULES, Preconditioner, ThorError, trace_rule

# Thresholds (1/4, 1/16), which floats hold exactly: previous trace, trace now, stopped before; inverted, stopped after.
BRANCHES = {
    "first": (0, 5, False, True, False),
    "first, with nothing to see": (0, 0, False, True, False),
    "up, above w1": (16, 20.5, False, True, False),
    "down, above w1": (16, 11.5, False, True, False),
    "up, at w1": (16, 20, False, False, False),
    "down, at w1": (16, 12, False, False, False),
    "between": (16, 18, False, False, False),
    "up, at w2": (16, 17, False, False, False),
    "down, at w2": (16, 15, False, False, False),
    "below w2": (16, 16.5, False, False, True),
    "the same": (16, 16, False, False, True),
    "stopped, above w1": (16, 99, True, False, True),
    "stopped, below w2": (16, 16, True, False, True),
}


@pytest.mark.parametrize("case", BRANCHES)
def test_branches(case):
    previous, value, stopped, *expected = BRANCHES[case]
    found = trace_rule(np.array([value]), np.array([previous]), np.array([stopped]), (0.25, 0.0625))
    assert [mask.tolist() for mask in found] == [[e] for e in expected]


@pytest.mark.parametrize("rule, expected", [
    ("thor", [True, True, False, False, True]),
    ("thor_stop", [True, True, False, False, False]),  # stopped by the fourth
    ("thor_nt", [True, True, True, False, True]),  # the fourth is the same as the third
])  # fmt: skip
def test_rules_of_the_paper(rule, expected):
    """Traces 100, 102, 102.5, 102.5 (or a hair more), 110: against that of the last inversion."""
    previous, stopped, found = np.zeros(1), np.zeros(1, bool), []
    for value in (100.0, 102.0, 102.5, 102.01 if rule == "thor_stop" else 102.5, 110.0):
        inverted, stopped = trace_rule(np.array([value]), previous, stopped, TRACE_RULES[rule])
        previous = np.where(inverted, value, previous)
        found += inverted.tolist()
    assert found == expected


# -- In a Preconditioner ----------------------------------------------------------------------------------------


def two_layers():
    ms.set_seed(1)
    return nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 2))


def refresh(thor, step, first, second):
    """Give the two layers factors that are multiples of the identity; their traces are 6 * the squares of these."""
    factors = [
        [tensor(np.where(np.eye(factor.shape[-1]), scale, 0)[None]) for factor in (layer.factor_a, layer.factor_g)]
        for layer, scale in zip(thor.layers.values(), (first, second))
    ]
    traces = [[factor.asnumpy().trace(axis1=1, axis2=2).sum() for factor in pair] for pair in factors]
    return thor.refresh(step, factors, tensor(traces))


def of_layers(thor, name):
    """A parameter of every layer, by its name there."""
    return [getattr(layer, name).asnumpy() for layer in thor.layers.values()]


def thor_of(net, damping=(0.25,), thresholds=(0.25, 0.0625)):
    return Preconditioner(net, damping, [True], block_size=None, thresholds=thresholds)


def test_traces_include_the_damping():
    """trace(factor_a (x) factor_g) + damping * size, of each layer; of a new damping as well."""
    thor = thor_of(two_layers(), damping=(0.25, 0.5))
    np.testing.assert_allclose(refresh(thor, 0, 1.0, 2.0)["trace"], [6 + 0.25 * 6, 24 + 0.25 * 6])
    np.testing.assert_allclose(refresh(thor, 1, 1.0, 2.0)["trace"], [6 + 0.5 * 6, 24 + 0.5 * 6])
    np.testing.assert_allclose(refresh(thor, 7, 1.0, 2.0)["trace"], [6 + 0.5 * 6, 24 + 0.5 * 6])  # the last one stays


def test_scripted_factor_steps():
    """Inverses are those of the factors at the last inversion; a stopped layer keeps its factors too."""
    thor = thor_of(two_layers(), damping=(0.0,))
    script = [  # scale of both factors of each layer; which are inverted, and which stopped
        ((4.0, 4.0), [True, True], [0, 0]),
        ((4.2, 8.0), [False, True], [0, 0]),  # 10 % more
        ((4.04, 8.01), [False, False], [1, 1]),
        ((8.0, 16.0), [False, False], [1, 1]),
    ]
    for step, (scales, inverted, stopped) in enumerate(script):
        found = refresh(thor, step, *scales)
        assert found["inverted"].tolist() == inverted and np.ravel(of_layers(thor, "stopped")).tolist() == stopped
    for kind in ("a", "g"):
        np.testing.assert_allclose([i[0, 0, 0] for i in of_layers(thor, f"inverse_{kind}")], [1 / 4.0, 1 / 8.0])
        np.testing.assert_allclose([f[0, 0, 0] for f in of_layers(thor, f"factor_{kind}")], [4.04, 8.01])
    np.testing.assert_allclose(np.ravel(of_layers(thor, "trace")), [6 * 4.0**2, 6 * 8.0**2])


def test_stopping_survives_a_checkpoint(tmp_path):
    """And so does the trace that the next one is compared with."""
    thor = thor_of(two_layers())
    refresh(thor, 0, 4.0, 4.0)
    refresh(thor, 1, 4.0, 4.4)
    assert np.ravel(of_layers(thor, "stopped")).tolist() == [1, 0]
    ms.save_checkpoint(thor, str(tmp_path / "thor.ckpt"))
    fresh = thor_of(two_layers())
    missing, unused = ms.load_param_into_net(fresh, ms.load_checkpoint(str(tmp_path / "thor.ckpt")))
    assert missing == unused == []
    for ours, theirs in zip(values(fresh).items(), values(thor).items(), strict=True):
        np.testing.assert_array_equal(ours[1], theirs[1], err_msg=theirs[0])
    for each in (thor, fresh):
        assert refresh(each, 2, 16.0, 4.5)["inverted"].tolist() == [False, True]


# -- Factors that are not finite ------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [*TRACE_RULES.values(), (0.25, 0.0625)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_factor_that_is_not_finite_changes_nothing(bad, rule):
    """Of its layer, which goes on when it is finite again; the other layer's inverse is refreshed."""
    thor = thor_of(two_layers(), thresholds=rule)
    refresh(thor, 0, 4.0, 4.0)
    before = values(thor)
    with pytest.warns(UserWarning, match="^THOR keeps the inverses of 1: its factors in step 2 are") as seen:
        found = refresh(thor, 1, 8.0, bad)
    assert len(seen) == 1 and found["inverted"].tolist() == [True, False]
    after = values(thor)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    own = ("factor_a", "factor_g", "inverse_a", "inverse_g", "trace")
    assert changed == {f"thor.0.{name}" for name in own} and not any(of_layers(thor, "stopped"))
    assert refresh(thor, 2, 16.0, 8.0)["inverted"].tolist() == [True, True]


def test_a_layer_without_activations_does_not_stop():
    """Its trace, now damping alone, hardly differs from before; it is refreshed when something comes through again."""
    thor = thor_of(two_layers(), damping=(1.0,), thresholds=(0.01, 0.001))
    refresh(thor, 0, 0.02, 4.0)  # a trace of 6.0024
    with pytest.warns(UserWarning, match="^THOR keeps the inverses of 0: nothing but zeros went through"):
        found = refresh(thor, 1, 0.0, 8.0)
    assert found["inverted"].tolist() == [False, True] and not any(of_layers(thor, "stopped"))
    assert refresh(thor, 2, 4.0, 8.0)["inverted"].tolist() == [True, False]


def test_factors_not_finite_at_first():
    """No inverse yet: the gradient passes, until there are factors."""
    thor = thor_of(two_layers())
    with pytest.warns(UserWarning, match="inverses of 0"):
        found = refresh(thor, 0, np.nan, 4.0)
    assert found["inverted"].tolist() == [False, True]
    np.testing.assert_array_equal(thor.layers["0"].inverse_a.asnumpy(), np.eye(2)[None])
    assert refresh(thor, 1, 2.0, 4.0)["inverted"].tolist() == [True, False]


# -- Settings that are wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings, message", [
    ({"damping": 0.1}, "damping: must have a value for each step"),
    ({"damping": [0.1, np.nan]}, r"damping: must be at least 0 at every step, not \[nan\]"),
    ({"damping": []}, "damping: must have a value for each step"),
    ({"factor_steps": [False, True]}, "factor_steps: must begin with the first step"),
    ({"block_size": 0}, "block_size: must be at least 1, not 0"),
    ({"thresholds": (0.001, 0.01)}, r"thresholds: must be .w1, w2. with w1 >= w2 >= 0, not \(0.001, 0.01\)"),
    ({"thresholds": "thor"}, "thresholds: must be \\(w1, w2\\) with w1 >= w2 >= 0, not thor"),
    ({"factor_ema": 1.0}, "factor_ema: must be at least 0 and below 1, not 1.0"),
    ({"factor_share": 0.0}, "factor_share: must be above 0 and at most 1, not 0.0"),
    ({"clip_fisher_norm": np.inf}, "clip_fisher_norm: must be above 0, or None, not inf"),
    ({"loss_scale": 0.0}, "loss_scale: must be a number above 0, not 0.0"),
])  # fmt: skip
def test_wrong_settings(settings, message):
    """One line that names the setting, and the network is as it was."""
    net = two_layers()
    with pytest.raises(ThorError, match=f"^{message}") as caught:
        Preconditioner(net, **{"damping": [0.1], "factor_steps": [True], **settings})
    assert len(str(caught.value).splitlines()) == 1
    assert [type(cell) for cell in net] == [nn.Dense, nn.Dense]


@pytest.mark.parametrize("net", [
    lambda: nn.SequentialCell(nn.BatchNorm2d(2), nn.ReLU()),
    lambda: nn.SequentialCell(nn.Dense(2, 2, activation="relu")),
    lambda: nn.Dense(2, 2),  # nothing around it that could hold its taps
])  # fmt: skip
def test_no_layer_to_precondition(net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ThorError, match="^no layer to precondition: "):
            Preconditioner(net(), [0.1], [True])


def test_a_network_belongs_to_one_thor():
    net = two_layers()
    Preconditioner(net, [0.1], [True])
    with pytest.raises(ThorError, match="^the network is converted already"):
        Preconditioner(net, [0.1], [True])


def test_a_step_before_the_end_of_the_schedules_and_after():
    """Beyond their last value schedules stay at it."""
    thor = Preconditioner(two_layers(), [0.1], [True, False, True, False])
    assert [thor.is_factor_step(step) for step in range(6)] == [True, False, True, False, False, False]
