import numpy as np
import pytest

from revbis.io import schema


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.25), "0.9", np.array(0.5)])
def test_discount_is_returned_as_a_float(value):
    result = schema.discount(value)
    assert type(result) is float
    assert result == float(value)


@pytest.mark.parametrize("value", [1, 1.5, -0.1, np.nan, np.inf])
def test_discount_outside_its_range(value):
    with pytest.raises(ValueError, match=rf"gamma must be in \[0, 1\), got {value:g}"):
        schema.discount(value)


@pytest.mark.parametrize("value", [None, "high", [0.5, 0.6]])
def test_what_is_no_number(value):
    with pytest.raises(ValueError, match="c must be a number, got"):
        schema.discount(value, "c")


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
def test_positive_refuses(value):
    with pytest.raises(ValueError, match="tol must be a finite number above 0, got"):
        schema.positive(value, "tol")


def test_positive_accepts():
    assert schema.positive(1e-300, "tol") == 1e-300


def test_choice_returns_the_name():
    assert schema.choice("mico", ("mico", "revised"), "metric") == "mico"


def test_choice_answers_a_typo_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"one of mico, revised, got 'revisd'; did you mean 'rev"):
        schema.choice("revisd", ("mico", "revised"), "metric")


@pytest.mark.parametrize("value", ["zzz", None, 3])
def test_choice_without_a_near_name(value):
    with pytest.raises(ValueError, match=r"metric must be one of mico, revised, got [^;]*$"):
        schema.choice(value, ("mico", "revised"), "metric")


def test_finite_matrix_converts():
    result = schema.finite_matrix([[1, 2]], (1, 2), "d")
    assert result.dtype == np.float64
    assert result.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2.0, 3.0]], r"d must have shape \(1, 2\), got \(1, 3\)"),
        (3.0, r"d must have shape \(1, 2\), got \(\)"),
        ([["a", "b"]], "d must hold real numbers, got texts"),
        ([[1.0], [1.0, 2.0]], "d must be an array of numbers with rows of equal length"),
        ([[1j, 2.0]], "d must hold real numbers, got complex numbers"),
        ([[True, False]], "d must hold real numbers, got booleans"),
        (None, "d must hold real numbers, got None"),
        ([[0.0, np.nan]], r"1 of its entries are not; the first is d\[0, 1\] = nan"),
        ([[np.inf, np.nan]], r"2 of its entries are not; the first is d\[0, 0\] = inf"),
    ],
)
def test_finite_matrix_refuses(value, message):
    with pytest.raises(ValueError, match=message):
        schema.finite_matrix(value, (1, 2), "d")


def test_a_reason_is_one_line():
    assert schema.reason(ValueError("it must be 1\nor 2")) == "it must be 1"
    assert schema.reason(KeyError("networks")) == "KeyError: 'networks'"
    assert schema.reason(ValueError()) == "ValueError"
    assert len(schema.reason(ValueError("x" * 1000))) == 300


@pytest.mark.parametrize("value", ["yes", 1, 0.0, None, [], np.ones(2)])
def test_a_flag_is_true_or_false(value):
    assert schema.flag(True, "it") is True and schema.flag(np.bool_(False), "it") is False
    with pytest.raises(ValueError, match="it must be True or False, got"):
        schema.flag(value, "it")
