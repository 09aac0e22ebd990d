"""The worked cases: in fractions, against the text's figures, and where the text contradicts its own formula."""

from __future__ import annotations

from fractions import Fraction

import pytest

from controller.acceleration.model import decide, exact_times, times
from controller.acceleration.model.columns import Works
from controller.acceleration.model.worked import CASES, DRAWN, ETHERNET, Case
from controller.acceleration.values import TIE_BAND, Growth, Machines, TransferModel, Work

FORMS = (
    "(t + 200/9) / (t/64 + 256099/11520)",
    "(t^2 + 20/9) / (t^2/64 + 256099/115200)",
    "(t + 5/18) / (t/64 + 3299/11520)",
    "(t^2 + 1/36) / (t^2/64 + 3299/115200)",
    "(t + 5/18) / (t/64 + 1409/3840)",
    "(t^2 + 1/36) / (t^2/64 + 1409/38400)",
    "(t + 200/9) / (t/64 + 26689/3840)",
    "(t^2 + 20/9) / (t^2/64 + 26689/38400)",
)


def test_all_eight_worked_cases_are_the_fractions_of_the_table() -> None:
    assert tuple(str(case.form()) for case in CASES) == FORMS


def test_formulas_give_the_worked_ratios_for_filter_and_join() -> None:
    assert [round(float(case.ratio()), 4) for case in DRAWN] == [0.9998, 1.0173, 0.9872, 2.3162, 0.7705, 1.8162]


def test_cases_note_that_text_and_formula_differ() -> None:
    assert [case.figure for case in CASES if case.remark] == ["2b", "2c", "2e"]
    contradicting = CASES[4]
    assert contradicting.stated == 3.2
    assert contradicting.ratio() < 1 < contradicting.stated
    swapped_with = CASES[6]
    assert round(float(swapped_with.ratio()), 3) == 3.198
    for case in DRAWN:
        stated = case.stated or 0.0
        assert (abs(float(case.ratio()) - stated) > 0.0175) == (case.figure == "2e"), case.figure


def test_case_2b_is_a_tie_that_the_default_band_keeps_on_the_cpu() -> None:
    """The text reads its ratio as 1, and the band changes the verdict of no other figure."""
    assert CASES[1].stated == 1
    assert "1.0173" in CASES[1].remark
    for case in DRAWN:
        works = Works.of([case.work(float(case.t))])
        without, within = (
            decide(works, case.machines(), [case.accelerator], tie_band=band)[0] for band in (0.0, TIE_BAND)
        )
        assert without.device == ("gpu" if case.ratio() > 1 else "cpu")
        assert (without.device != within.device) == (case.figure == "2b") == (within.tied == "gpu")
        assert without.tied == ""


def test_the_table_takes_the_limit_and_the_finite_sum_is_offered() -> None:
    figure_2d = CASES[3]
    assert round(float(figure_2d.ratio()), 4) == 2.3162
    assert round(float(figure_2d.ratio(finite=True)), 4) == 2.3175


def test_the_sum_gives_888_9_s_and_the_tree_24_s() -> None:
    work = Work("any", Growth.LINEAR, 0.0, 1.0)
    assert exact_times(work, Machines(ETHERNET, 1000)).transfer_s == Fraction(8000, 9)
    assert exact_times(work, Machines(ETHERNET, 1000, has_finite_sum=True)).transfer_s == 888
    assert exact_times(work, Machines(ETHERNET, 1000, transfer=TransferModel.PER_PATH)).transfer_s == 24


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_vectorised_model_gives_the_worked_cases(case: Case) -> None:
    works = Works.of([case.work(float(case.t))])
    ratio = times(works, case.machines()).total_s / times(works, case.machines(), case.accelerator).total_s
    assert ratio[0] == pytest.approx(float(case.ratio()), rel=1e-14)
