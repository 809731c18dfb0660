"""What the columns of a table are taken for."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm.errors import InputError
from bestarm.problem.tables import only_reading, propose


def proposed(folder, head, *rows, **given):
    (folder / "t.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return [str(reading) for reading in propose(folder / "t.csv", given=given)]


def test_names_of_columns_decide(tmp_path):
    rows = [
        f"{k},2024-05-{1 + k % 30:02},{'EU' if k % 2 else 'US'},{'AB'[k % 3 % 2]},{k / 7:.2f}"
        for k in range(90)
    ]
    found = proposed(tmp_path, "id,date,country,treatment,revenue", *rows)
    assert found == ['site = "country", option = "treatment", reward = "revenue"']


def test_clicks_and_impressions_are_counts(tmp_path):
    rows = ["US,a,100,7", "US,b,120,9", "EU,a,90,4", "EU,b,80,5"]
    found = proposed(tmp_path, "region,variant,impressions,clicks", *rows)
    assert found == ['site = "region", option = "variant", successes = "clicks", trials = "impressions"']


def test_patients_who_were_healed_of_those_who_were_treated_are_counts(tmp_path):
    rows = ["Bonn,alpha,41,60", "Bonn,beta,33,58", "Trier,alpha,22,40", "Trier,beta,25,44"]
    found = proposed(tmp_path, "Clinic,Drug,Healed,Treated", *rows)
    assert found == ['site = "Clinic", option = "Drug", successes = "Healed", trials = "Treated"']


def test_an_error_about_the_reward_names_counts_as_well(tmp_path):
    proposed(tmp_path, "city,offer,x,y", "p,a,3,9", "p,b,4,8", "q,a,5,7", "q,b,2,6")
    with pytest.raises(InputError, match="--reward x, or give --successes and --trials if columns count"):
        only_reading(propose(tmp_path / "t.csv"), "t.csv")


def test_a_count_goes_with_a_reward(tmp_path):
    rows = ["n1,a,3,10", "n1,b,4,7", "n2,a,5,1", "n2,b,1,2"]
    assert proposed(tmp_path, "hospital,drug,score,count", *rows) == [
        'site = "hospital", option = "drug", reward = "score", count = "count"'
    ]


def test_averages_and_shares_with_a_count_may_be_read_in_two_ways(tmp_path):
    rows = ["EU,a,40,30 %", "EU,b,41,20 %", "US,a,39,28 %", "US,b,44,19 %"]
    either = [
        f'site = "region", option = "drug", reward = "response"{more}' for more in (', count = "n"', "")
    ]
    assert sorted(proposed(tmp_path, "region,drug,n,response", *rows)) == sorted(either)
    with pytest.raises(InputError, match="--count n, or name all other columns and no count"):
        only_reading(propose(tmp_path / "t.csv"), "t.csv")
    assert proposed(tmp_path, "region,drug,n,response", *rows, count="n") == either[:1]
    means = ["EU,a,40,3.5", "EU,b,41,2.0", "US,a,39,4.5", "US,b,44,1.5"]
    assert len(proposed(tmp_path, "region,drug,n,mean_score", *means)) == 2
    assert len(proposed(tmp_path, "region,drug,n,score", *means)) == 1


def test_ids_are_no_trials(tmp_path):
    rows = [f"{600000 + 7919 * k % 100003},{'ab'[k % 2]},{int(k % 5 == 0)}" for k in range(90)]
    assert proposed(tmp_path, "user_id,group,converted", *rows) == ['option = "group", reward = "converted"']


def test_a_row_with_more_successes_than_trials_hides_neither(tmp_path):
    rows = ["FR,a,5,3", "FR,b,4,100", "DE,a,9,120", "DE,b,12,110"]
    assert proposed(tmp_path, "country,campaign,clicks,impressions", *rows) == [
        'site = "country", option = "campaign", successes = "clicks", trials = "impressions"'
    ]
    swapped = [row.rsplit(",", 2) for row in rows[1:]]
    wrong = [",".join([names, trials, clicks]) for names, clicks, trials in swapped]
    assert not any(
        "trials" in text for text in proposed(tmp_path, "country,campaign,clicks,impressions", *wrong)
    )


def test_a_table_with_one_column_per_option_is_explained(tmp_path):
    rows = [f"{k},{k % 7},{k % 5}" for k in range(20)]
    with pytest.raises(InputError, match="put names into one column and results into another"):
        proposed(tmp_path, "day,photo,plain", *rows)


def test_numbers_as_people_write_them_are_rewards(tmp_path):
    for cells in (["yes", "no"], ["12%", "3 %"], ['"1,234"', "999"], ["17 ms", "20 ms"], ["$3", "$4.50"]):
        rows = [f"s{k % 2},{'ab'[k // 2 % 2]},{cells[k % 2]}" for k in range(8)]
        assert proposed(tmp_path, "city,variant,what", *rows) == [
            'site = "city", option = "variant", reward = "what"'
        ]


@pytest.mark.parametrize(
    "cells",
    [
        [f"2024-01-{1 + k % 28:02}" for k in range(80)],
        [f"{1 + k % 12}/{1 + k % 28}/2024" for k in range(80)],
        [str(k) for k in range(80)],
        [f"user {k}" for k in range(80)],
        [f"user {k % 60}" for k in range(80)],
    ],
    ids=["dates", "other dates", "row numbers", "unique", "nearly unique"],
)
def test_dates_row_numbers_and_nearly_unique_columns_are_no_sites_or_options(tmp_path, cells):
    rows = [f"{cell},{'ab'[k % 2]},{k % 5}" for k, cell in enumerate(cells)]
    for name in ("x", "variant", "site"):
        assert proposed(tmp_path, f"{name},colour,score", *rows) == ['option = "colour", reward = "score"']


def test_what_is_not_clear_is_listed_and_refused(tmp_path):
    rows = [f"{'pq'[k % 2]},{'ab'[k // 2 % 2]},{k % 5}" for k in range(60)]
    found = proposed(tmp_path, "x,y,z", *rows)
    assert len(found) == 4  # each of x and y is the site, the option, or neither
    with pytest.raises(
        InputError, match=r'read in 4 ways: \(1\) site = "x", option = "y", reward = "z"; \(2\)'
    ):
        only_reading(propose(tmp_path / "t.csv"), "t.csv")
    assert proposed(tmp_path, "x,y,z", *rows, site="y", option="x") == [
        'site = "y", option = "x", reward = "z"'
    ]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no column looks like the option"):
        proposed(tmp_path, "when,score", *[f"2024-01-{1 + k:02},{k}" for k in range(20)])
    with pytest.raises(InputError, match=r"no column looks like the rewards"):
        proposed(tmp_path, "variant,colour", "a,red", "b,blue", "a,red")


def test_columns_that_are_named_like_ratings_count_them(tmp_path):
    rows = ["A,x,1,2,3", "A,y,0,1,7", "B,x,3,3,1"]
    for names in ("1 star,2 stars,3 stars", "1★,2★,3★", "n_rating_1,n_rating_2,n_rating_3"):
        listed = ", ".join(f'"{name}"' for name in names.split(","))
        found = proposed(tmp_path, f"city,place,{names}", *rows)
        assert found == [f'site = "city", option = "place", ratings = [{listed}]']
    given = proposed(tmp_path, "city,place,1★,2★,3★", *rows, reward="3★")
    assert given == ['site = "city", option = "place", reward = "3★"']


def test_all_columns_of_ratings_are_read_or_none(tmp_path):
    rows = ["A,x,1,2,3,4", "A,y,2,1,4,x", "B,x,3,2,5,1"]  # "1★" and "3★" count upwards like row numbers
    found = proposed(tmp_path, "city,place,1★,2★,3★,4★", *rows)
    assert found
    assert not [text for text in found if "ratings" in text]
    found = proposed(tmp_path, "city,place,1★,2★,3★", *(row[:-2] for row in rows))
    assert found == ['site = "city", option = "place", ratings = ["1★", "2★", "3★"]']


def test_columns_named_by_bare_numbers_may_be_ratings_or_not(tmp_path):
    rows = ["A,x,1,2,3", "A,y,0,1,7", "B,x,1,2,3"]
    found = proposed(tmp_path, "city,place,1,2,3", *rows)
    assert found[0] == 'site = "city", option = "place", ratings = ["1", "2", "3"]'
    assert 'site = "city", option = "place", reward = "2"' in found
    years = proposed(tmp_path, "city,place,2021,2022,2023", *rows)
    assert not [text for text in years if "ratings" in text]


def test_a_frame_is_profiled_as_well():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2024-01-01", periods=200, freq="h"),
            "hospital": rng.choice(["a", "b"], 200),
            "treated": rng.random(200) < 0.5,
            "arm": rng.integers(0, 3, 200),
            "outcome": rng.random(200) < 0.3,
        }
    )
    (reading,) = propose(frame, given={"reward": "outcome"})
    assert str(reading) == 'site = "hospital", option = "arm", reward = "outcome"'
    assert reading.reasons[0] == 'site = "hospital": "hospital" in its name, and it holds text: a, b'


def test_a_column_that_is_mostly_empty_is_not_preferred_to_a_complete_one(tmp_path):
    rows = [f"{'pq'[k % 2]},{'ab'[k // 2 % 2]},{'no,' if k % 5 else f'yes,{k}'}" for k in range(60)]
    found = proposed(tmp_path, "city,offer,purchased?,revenue", *rows)
    assert {text.rpartition("reward = ")[2] for text in found} == {'"purchased?"', '"revenue"'}
    with pytest.raises(InputError, match=r"Name the column of the reward, such as --reward "):
        only_reading(propose(tmp_path / "t.csv"), "t.csv")


def test_zeros_and_ones_are_results_and_not_successes_of_a_time_or_a_day(tmp_path):
    for other in ("timestamp", "day", "customer age", "basket"):
        rows = [f"{1700 + 37 * k % 300},{'ab'[k % 2]},{k // 2 % 2}" for k in range(80)]
        for reading in proposed(tmp_path, f"{other},arm,purchase", *rows):
            assert "trials" not in reading
    rows = [f"{9 + k},{'ab'[k % 2]},{k % 2}" for k in range(0, 40, 3)]  # a few visitors per row
    assert proposed(tmp_path, "visitors,arm,purchase", *rows) == [
        'option = "arm", successes = "purchase", trials = "visitors"'
    ]


def test_a_few_bad_cells_do_not_make_a_column_of_numbers_text(tmp_path):
    for good, bad in (("{}", "absent"), ("{}%", "0.5")):
        rows = [
            f"{'ns'[k % 2]},{'ab'[k // 2 % 2]},{2020 + k % 3},{good.format(k * 7 % 90)}" for k in range(200)
        ]
        rows[150] = rows[150].rpartition(",")[0] + f",{bad}"
        assert proposed(tmp_path, "school,teacher,year,score", *rows) == [
            'site = "school", option = "teacher", reward = "score"'
        ]


def test_ratings_with_a_total_are_among_the_readings(tmp_path):
    rows = ["A,5,10,30,60,40,145", "B,2,8,25,70,60,165", "C,30,30,20,10,5,95"]
    first, *rest = proposed(tmp_path, "movie,1,2,3,4,5,total", *rows)
    assert first == 'option = "movie", ratings = ["1", "2", "3", "4", "5"]'
    assert rest
    assert not any("trials" in reading for reading in rest)
