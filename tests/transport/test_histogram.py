import math
import random
import struct
import tracemalloc
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from onehop.transport.errors import LimitError, Malformed
from onehop.transport.histogram import (
    FORMAT_VERSION,
    GAMMA,
    LN_GAMMA,
    MAX_BUCKET,
    MAX_COUNT,
    MAX_VALUE,
    MIN_VALUE,
    MIN_WEIGHT,
    OFFSET,
    RELATIVE_ERROR,
    VALUE_LIMIT,
    Histogram,
    bucket_of,
    value_of,
)

Weight = int | float
SEED = 20_240_611
QS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)
TOLERANCE = RELATIVE_ERROR + 1e-12  # what float arithmetic adds, with room


def lognormal(rng: random.Random) -> float:
    return rng.lognormvariate(10.0, 2.0)


def pareto(rng: random.Random) -> float:
    return 1e-6 * rng.paretovariate(1.1)


def bimodal(rng: random.Random) -> float:
    return rng.gauss(5e3, 2e2) if rng.random() < 0.95 else rng.gauss(4e7, 1e6)


def disagreeing_clocks(rng: random.Random) -> float:
    return float(round(rng.gauss(0.0, 20.0)))  # negative, zero and positive


SHAPES = (lognormal, pareto, bimodal, disagreeing_clocks)
over_shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
Shape = Callable[[random.Random], float]

unhurried = settings(
    max_examples=60, deadline=None, database=None
)  # a slow machine is not a wrong answer
values = st.floats(-VALUE_LIMIT, VALUE_LIMIT) | st.integers(-(10**19), 10**19)
usual_values = st.floats(MIN_VALUE, MAX_VALUE)
weights = st.integers(1, 2**40) | st.floats(MIN_WEIGHT, 1e12)
int_histograms = st.builds(Histogram, st.lists(values, max_size=20))


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    made = Histogram()
    for value, weight in draw(st.lists(st.tuples(values, weights), max_size=20)):
        made.record(value, weight)
    return made


def exact_quantile(pairs: list[tuple[float, Weight]], q: float) -> float:
    """The rank as `Histogram.quantile` defines it, by sorting everything."""
    rank, upto = q * sum(weight for _, weight in pairs), 0.0
    for value, weight in sorted(pairs):
        upto += weight
        if upto >= rank:
            return value
    raise AssertionError("rank above the total weight")


def assert_within_bound(histogram: Histogram, pairs: list[tuple[float, Weight]]) -> None:
    for q, answer in zip(QS, histogram.quantiles(QS), strict=True):
        truth = exact_quantile(pairs, q)
        assert answer is not None
        assert abs(answer - truth) <= TOLERANCE * abs(truth), (SEED, q, answer, truth)


# The mapping


# Found with 50-digit decimals: ceil(ln(v) / ln(1.01 / 0.99)) + 1037.
PINNED = {
    1e-9: 1, 1e-6: 347, 0.001: 692, 0.5: 1003, 1.0: 1037, 1.02: 1038, 1.5: 1058, 2.0: 1072,
    10.0: 1153, 1000.0: 1383, 123456.0: 1624, 1e6: 1728, 1e9: 2074, 86400e9: 2642, 1e18: 3110,
}  # fmt: skip


@pytest.mark.parametrize(("value", "bucket"), PINNED.items())
def test_bucket_numbers_are_those_other_programs_have_stored(value: float, bucket: int) -> None:
    assert bucket_of(value) == bucket
    assert bucket_of(-value) == -bucket
    assert list(Histogram([value]).buckets()) == [bucket]


def test_the_constants_of_the_mapping_are_pinned() -> None:
    assert (RELATIVE_ERROR, OFFSET, MAX_BUCKET, MIN_VALUE, MAX_VALUE) == (
        (0.01, 1037, 3110, 1e-9, 1e18)
    )
    with localcontext() as context:
        context.prec = 50
        assert float((Decimal("1.01") / Decimal("0.99")).ln()) == LN_GAMMA
    assert value_of(OFFSET) == pytest.approx(2 / (1 + GAMMA), rel=1e-13)


def test_bucket_numbers_agree_with_fifty_digit_logarithms() -> None:
    rng = random.Random(SEED)
    with localcontext() as context:
        context.prec = 50
        ln_gamma = (Decimal("1.01") / Decimal("0.99")).ln()
        for _ in range(300):
            value = 10 ** rng.uniform(-9, 18)
            place = Decimal(value).ln() / ln_gamma
            assert bucket_of(value) == place.to_integral_value(ROUND_CEILING) + 1037, value


@seed(SEED)
@unhurried
@given(values)
def test_recording_uses_the_bucket_that_bucket_of_names(value: float) -> None:
    assert Histogram([value]).buckets() == {bucket_of(value): 1}


@seed(SEED)
@unhurried
@given(usual_values)
def test_the_value_of_a_bucket_is_near_everything_in_it(value: float) -> None:
    assert abs(value_of(bucket_of(value)) - value) <= TOLERANCE * value
    assert value_of(bucket_of(-value)) == -value_of(bucket_of(value))


def test_every_bucket_holds_its_own_value() -> None:
    for bucket in range(-MAX_BUCKET, MAX_BUCKET + 1):
        assert bucket_of(value_of(bucket)) == bucket


@seed(SEED)
@unhurried
@given(values, values)
def test_buckets_are_in_the_order_of_the_values(one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert bucket_of(low) <= bucket_of(high)


# Limits


def test_sizes_outside_the_range_get_the_bucket_of_the_nearer_bound() -> None:
    tiny, huge = math.nextafter(MIN_VALUE, 0.0), math.nextafter(MAX_VALUE, math.inf)
    assert [bucket_of(v) for v in (5e-324, tiny, MIN_VALUE)] == [1, 1, 1]
    assert [bucket_of(v) for v in (MAX_VALUE, huge, VALUE_LIMIT)] == [MAX_BUCKET] * 3
    assert [bucket_of(v) for v in (-huge, -tiny, -0.0, 0.0)] == [-MAX_BUCKET, -1, 0, 0]


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, 10**400, -(10**400), math.nextafter(VALUE_LIMIT, math.inf)],
    ids=lambda value: f"{value!s:.8}",
)
def test_a_value_that_cannot_be_counted_is_refused_and_leaves_no_trace(value: float) -> None:
    histogram = Histogram([1.0])
    with pytest.raises(LimitError, match="value is"):
        histogram.record(value)
    assert histogram == Histogram([1.0])


@pytest.mark.parametrize(
    "weight", [0, -1, math.nan, math.inf, MAX_COUNT + 1, math.nextafter(MIN_WEIGHT, 0.0)]
)
def test_a_weight_outside_its_limits_is_refused_and_leaves_no_trace(weight: Weight) -> None:
    histogram = Histogram()
    with pytest.raises(LimitError, match="weight is"):
        histogram.record(1.0, weight)
    assert histogram == Histogram()


def test_a_bucket_counts_up_to_its_limit_and_no_further() -> None:
    histogram = Histogram()
    histogram.record(1.0, MAX_COUNT - 1)
    histogram.record(1.0)
    full = histogram.copy()
    assert full.count == MAX_COUNT
    assert Histogram.from_bytes(full.to_bytes()) == full
    with pytest.raises(LimitError, match="would count"):
        histogram.record(1.0)
    with pytest.raises(LimitError, match="would count"):
        histogram.merge(Histogram([0.5, 1.0]))
    assert histogram == full


def test_a_bucket_number_beyond_the_last_is_refused() -> None:
    assert value_of(MAX_BUCKET) == pytest.approx(MAX_VALUE, rel=TOLERANCE)
    for bucket in (MAX_BUCKET + 1, -MAX_BUCKET - 1):
        with pytest.raises(LimitError, match="bucket is"):
            value_of(bucket)


@pytest.mark.parametrize("q", [-1e-9, 1 + 1e-9, math.nan])
def test_a_quantile_outside_zero_to_one_is_refused(q: float) -> None:
    for histogram in (Histogram(), Histogram([1.0])):
        with pytest.raises(LimitError, match="quantile is"):
            histogram.quantile(q)


# Quantiles


@over_shapes
def test_quantiles_are_within_the_error_bound(shape: Shape) -> None:
    rng = random.Random(SEED)
    data = [shape(rng) for _ in range(8_000)]
    assert_within_bound(Histogram(data), [(value, 1) for value in data])


@over_shapes
def test_quantiles_of_seven_merged_histograms_are_within_the_error_bound(shape: Shape) -> None:
    rng = random.Random(SEED)
    parts = [Histogram() for _ in range(7)]
    data = [shape(rng) for _ in range(8_000)]
    for value in data:
        rng.choice(parts).record(value)
    merged = Histogram()
    for part in parts:
        merged += part
    assert merged == Histogram(data)
    assert_within_bound(merged, [(value, 1) for value in data])


@over_shapes
@pytest.mark.parametrize("unit", [1, 0.25])  # exact in binary, so that ranks have no rounding
def test_quantiles_of_weighted_values_are_within_the_error_bound(
    shape: Shape, unit: Weight
) -> None:
    rng = random.Random(SEED)
    pairs = [(shape(rng), rng.randint(1, 40) * unit) for _ in range(4_000)]
    histogram = Histogram()
    for value, weight in pairs:
        histogram.record(value, weight)
    assert histogram.count == sum(weight for _, weight in pairs)
    assert_within_bound(histogram, pairs)


@seed(SEED)
@unhurried
@given(st.lists(usual_values | usual_values.map(lambda v: -v), min_size=1), st.floats(0, 1))
def test_any_quantile_of_any_values_is_within_the_error_bound(data: list[float], q: float) -> None:
    answer = Histogram(data).quantile(q)
    truth = exact_quantile([(value, 1) for value in data], q)
    assert answer is not None
    assert abs(answer - truth) <= TOLERANCE * abs(truth)
    assert min(data) <= answer <= max(data)


def test_the_rank_is_the_least_value_that_covers_its_share() -> None:
    ten, hundred, thousand = 10.0, 100.0, 1000.0
    histogram = Histogram([ten, hundred, thousand, 2000.0])
    assert histogram.quantile(0.5) == value_of(bucket_of(hundred))
    assert histogram.quantile(0.5 + 1e-9) == value_of(bucket_of(thousand))
    histogram.record(ten, 2)
    assert histogram.quantile(0.5) == value_of(bucket_of(ten))


def test_the_ends_are_exact_and_answers_stay_between_them() -> None:
    data = [123.456, 123.457, 7e6, -3.25]
    histogram = Histogram(data)
    assert histogram.quantiles((1, 0)) == [7e6, -3.25]
    assert (histogram.min, histogram.max) == (-3.25, 7e6)
    assert Histogram([123.456]).quantiles(QS) == [123.456] * len(QS)
    assert Histogram([1e150]).quantile(0.5) == 1e150


def test_an_empty_histogram_answers_none() -> None:
    empty = Histogram()
    assert (empty.count, empty.sum, empty.min, empty.max, empty.mean) == (0, 0.0, None, None, None)
    assert empty.quantiles((0, 0.5, 1)) == [None] * 3
    assert empty.quantile(0.5) is None
    assert repr(empty) == "<Histogram count=0 min=None max=None>"


# Sum, mean and addition


@seed(SEED)
@unhurried
@given(st.lists(values, min_size=1, max_size=40))
def test_the_sum_is_rounded_once_from_the_exact_sum(data: list[float]) -> None:
    histogram = Histogram(data)
    assert histogram.sum == float(sum(Fraction(float(value)) for value in data))
    mean = histogram.mean
    assert mean is not None
    assert min(map(float, data)) <= mean <= max(map(float, data))


def test_the_sum_stays_exact_over_many_records() -> None:
    rng = random.Random(SEED)
    data = [rng.choice((1e16, 1.0, 1e-9)) * rng.random() for _ in range(3_000)]
    histogram = Histogram(data)
    assert histogram.sum == math.fsum(data)
    assert histogram.mean == math.fsum(data) / 3_000
    histogram.record_many(-value for value in data)
    assert histogram.sum == 0.0


def test_the_memory_of_the_sum_does_not_grow_with_the_records() -> None:
    histogram = Histogram(1.1 for _ in range(2_000))
    assert len(histogram._terms) < 256


def test_the_mean_of_equal_values_is_that_value() -> None:
    assert math.fsum([0.1] * 3) / 3 > 0.1  # which is why the mean is moved into min and max
    assert Histogram([0.1] * 3).mean == 0.1


def test_float_weights_are_counted_without_regard_to_rounding_on_the_way() -> None:
    histogram = Histogram()
    for power in range(100):
        histogram.record(1.1**power, 0.1)
    assert sum([0.1] * 100) < 10.0
    assert histogram.count == 10.0
    nearly_all = math.nextafter(1.0, 0.0)  # a rank above the weights as they add up one by one
    assert histogram.quantile(nearly_all) == pytest.approx(1.1**99, rel=TOLERANCE)


def test_int_weights_are_counted_exactly_beyond_the_floats() -> None:
    histogram = Histogram()
    histogram.record(5, 2**60)
    histogram.record(5)
    assert histogram.buckets() == {bucket_of(5): 2**60 + 1}
    assert histogram.count == 2**60 + 1
    assert isinstance(histogram.count, int)
    histogram.record(50, 0.5)
    assert isinstance(histogram.buckets()[bucket_of(5)], int)
    assert isinstance(histogram.count, float)


@seed(SEED)
@unhurried
@given(int_histograms, int_histograms, int_histograms)
def test_addition_is_associative_and_commutative(a: Histogram, b: Histogram, c: Histogram) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Histogram() == a


@seed(SEED)
@unhurried
@given(histograms(), histograms())
def test_addition_with_any_weights_is_commutative(a: Histogram, b: Histogram) -> None:
    assert (a + b).to_bytes() == (b + a).to_bytes()


@seed(SEED)
@unhurried
@given(st.lists(values), st.lists(values))
def test_merging_is_recording_both(one: list[float], two: list[float]) -> None:
    merged = Histogram(one)
    merged.merge(Histogram(two))
    assert merged == Histogram(one + two)


def test_a_histogram_can_be_added_to_itself() -> None:
    histogram = Histogram([1.0, 2.0])
    histogram += histogram
    assert histogram == Histogram([1.0, 2.0, 1.0, 2.0])


def test_a_copy_and_a_sum_are_independent_of_where_they_came_from() -> None:
    histogram = Histogram([1.0, 2.0])
    twin, total = histogram.copy(), histogram + Histogram([3.0])
    histogram.record(9.0)
    histogram.buckets().clear()
    assert (twin.count, twin.max, twin.sum) == (2, 2.0, 3.0)
    assert (total.count, total.max, total.sum) == (3, 3.0, 6.0)
    assert histogram.count == 3
    assert twin != histogram
    assert twin != "a histogram"


# Bytes


def varint(number: int) -> bytes:
    more = number >> 7
    return bytes((number & 0x7F | 0x80,)) + varint(more) if more else bytes((number,))


def packed(*fields: Weight | bytes) -> bytes:
    """Bytes written by hand: ints as varints, floats as binary64, after the version."""
    out = bytes((FORMAT_VERSION,))
    for field in fields:
        if isinstance(field, bytes):
            out += field
        else:
            out += varint(field) if isinstance(field, int) else struct.pack("<d", field)
    return out


def key(step: int, *, is_float: bool = False) -> int:
    return 2 * step + is_float


FIRST = MAX_BUCKET + 1  # the step from before the first bucket to bucket 0


@seed(SEED)
@unhurried
@given(histograms())
def test_bytes_bring_back_the_same_histogram(histogram: Histogram) -> None:
    data = histogram.to_bytes()
    for form in (data, bytearray(data), memoryview(data)):
        again = Histogram.from_bytes(form)
        assert again == histogram
        assert again.to_bytes() == data
        assert again.quantiles(QS) == histogram.quantiles(QS)
        assert [type(n) for n in again.buckets().values()] == [
            type(n) for n in histogram.buckets().values()
        ]


def test_the_bytes_are_those_the_format_describes() -> None:
    histogram = Histogram([0.0, 0.0, 1.0])
    histogram.record(-1.0, 0.5)
    assert Histogram().to_bytes() == packed(0)
    assert histogram.to_bytes() == packed(
        *(3, -1.0, 1.0, 1, 0.5),
        *(key(FIRST - 1037, is_float=True), 0.5),
        *(key(1037), 2),
        *(key(1037), 1),
    )


def test_the_largest_histogram_there_can_be_survives_the_bytes() -> None:
    histogram = Histogram()
    for bucket in range(-MAX_BUCKET, MAX_BUCKET + 1):
        histogram.record(value_of(bucket), 2**62 + 1)
    for power in range(-1074, 660, 54):  # a sum of as many parts as can be
        histogram.record(math.ldexp(1.0, power))
    data = histogram.to_bytes()
    assert len(data) > 60_000
    assert Histogram.from_bytes(data) == histogram
    with pytest.raises(Malformed, match=r"trailing: .* at most"):
        Histogram.from_bytes(data + bytes(100_000))


def test_a_thousand_latencies_take_less_than_three_bytes_a_bucket() -> None:
    rng = random.Random(SEED)
    histogram = Histogram(round(lognormal(rng)) for _ in range(1_000))
    assert len(histogram.to_bytes()) < 3 * len(histogram.buckets())


def test_every_truncation_is_malformed_and_so_is_anything_after_the_end() -> None:
    rng = random.Random(SEED)
    histogram = Histogram(disagreeing_clocks(rng) for _ in range(300))
    histogram.record(1e-5, 0.1)
    data = histogram.to_bytes()
    for end in range(len(data)):
        with pytest.raises(Malformed) as caught:
            Histogram.from_bytes(data[:end])
        assert caught.value.reason == "truncated"
    with pytest.raises(Malformed) as caught:
        Histogram.from_bytes(data + b"\0")
    assert caught.value.reason == "trailing"


def assert_malformed_or_canonical(data: bytes) -> bool:
    try:
        histogram = Histogram.from_bytes(data)
    except Malformed:
        return False
    assert histogram.to_bytes() == data
    assert None not in (histogram.mean, *histogram.quantiles(QS)) or not histogram.count
    histogram += histogram  # what was let in can also be worked with
    return True


@seed(SEED)
@unhurried
@given(st.binary(max_size=80), st.booleans())
def test_random_bytes_are_malformed_or_canonical(data: bytes, has_version: bool) -> None:
    assert_malformed_or_canonical(bytes((FORMAT_VERSION,)) * has_version + data)


def test_damaged_bytes_are_malformed_or_canonical() -> None:
    rng = random.Random(SEED)
    histogram = Histogram(disagreeing_clocks(rng) for _ in range(20))
    histogram.record(0.3, 0.7)
    data = histogram.to_bytes()
    survivors = 0
    for _ in range(2_000):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice(
                (0, 1, 127, 128, 255, rng.getrandbits(8))
            )
        survivors += assert_malformed_or_canonical(bytes(damaged))
    assert 0 < survivors < 2_000, SEED  # a count may change into another count


ONE = (1, 1.0, 1.0, 1, 1.0)
AT_ONE = key(FIRST + 1037)
NONSENSE: dict[str, bytes] = {
    "count of zero": packed(*ONE, AT_ONE, 0),
    "count below the least weight": packed(*ONE, AT_ONE + 1, 1e-10),
    "count above the limit": packed(*ONE, AT_ONE, MAX_COUNT + 1),
    "float count above the limit": packed(*ONE, AT_ONE + 1, 2.0**63),
    "count that is not a number": packed(*ONE, AT_ONE + 1, math.nan),
    "bucket before the first": packed(1, -1e18, -1e18, 1, -1e18, key(0), 1),
    "bucket after the last": packed(1, 1e18, 1e18, 1, 1e18, key(FIRST + MAX_BUCKET + 1), 1),
    "bucket given twice": packed(2, 1.0, 1.0, 1, 1.0, AT_ONE, 1, key(0), 1),
    "least above greatest": packed(1, 1.0, 0.999, 1, 1.0, AT_ONE, 1),
    "least in another bucket": packed(1, 0.9, 1.0, 1, 1.0, AT_ONE, 1),
    "greatest in another bucket": packed(1, 1.0, 1.1, 1, 1.0, AT_ONE, 1),
    "least not a number": packed(1, math.nan, 1.0, 1, 1.0, AT_ONE, 1),
    "greatest infinite": packed(1, 1.0, math.inf, 1, 1.0, AT_ONE, 1),
    "sum infinite": packed(1, 1.0, 1.0, 1, math.inf, AT_ONE, 1),
    "sum out of reach": packed(1, 1.0, 1.0, 1, 1e251, AT_ONE, 1),
    "sum in overlapping parts": packed(1, 1.0, 1.0, 2, 0.5, 0.5, AT_ONE, 1),
    "sum in too many parts": packed(1, 1.0, 1.0, 37, b"\0" * 8 * 37, AT_ONE, 1),
    "sum of a needless zero": packed(1, 1.0, 1.0, 2, 1.0, 0.0, AT_ONE, 1),
    "padded varint": packed(*ONE, AT_ONE, b"\x81\x00"),
    "endless varint": packed(b"\xff" * 20),
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_malformed(data: bytes) -> None:
    assert Histogram.from_bytes(packed(*ONE, AT_ONE, 1)) == Histogram([1.0])
    with pytest.raises(Malformed) as caught:
        Histogram.from_bytes(data)
    assert caught.value.reason == "nonsense"


def test_the_parts_of_a_sum_are_counted_before_they_are_read() -> None:
    with pytest.raises(Malformed, match="sum in 37 parts, 36 are enough"):
        Histogram.from_bytes(packed(1, 1.0, 1.0, 37))
    with pytest.raises(Malformed, match="truncated"):
        Histogram.from_bytes(packed(1, 1.0, 1.0, 36))


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, 255])
def test_another_version_is_malformed(version: int) -> None:
    with pytest.raises(Malformed, match=f"version {version}, expected 1") as caught:
        Histogram.from_bytes(bytes((version, 0)))
    assert caught.value.reason == "version"


@pytest.mark.parametrize(
    "data",
    [packed(2**62, 1.0, 1.0, 0, AT_ONE, 1), packed(1, 1.0, 1.0, 2**62), packed(2**62)],
    ids=["buckets", "parts", "nothing else"],
)
def test_a_few_bytes_that_promise_much_cost_little(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            Histogram.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# -- many at once ----------------------------------------------------------------------------------

edges = st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, -(2**53), 2**63, -(2**70), 10**18, True])


@given(st.lists(st.integers(-(2**54), 2**54) | st.integers(0, 10**6) | edges | st.floats(-9, 9)))
def test_a_list_is_counted_as_its_values_are_one_by_one(values: list[float]) -> None:
    together, one_by_one = Histogram(), Histogram()
    for histogram in (together, one_by_one):
        histogram.record(0.1)
    together.record_many(values)
    for value in values:
        one_by_one.record(value)
    assert together == one_by_one
    assert together.to_bytes() == one_by_one.to_bytes()


@given(st.lists(st.integers(2**51, 2**53 - 1), min_size=2))
def test_the_sum_of_a_list_is_exact_beyond_what_one_float_holds(values: list[float]) -> None:
    together = Histogram()
    together.record_many(values)
    assert together == Histogram(iter(values))
    assert together.sum == float(sum(map(int, values)))


def test_every_power_of_the_base_goes_where_one_by_one_it_would() -> None:
    values: list[float] = [
        around for bucket in range(1038, 2860) for v in [int(value_of(bucket))]
        for around in (v - 1, v, v + 1)
    ]  # fmt: skip
    together = Histogram()
    together.record_many(values)
    assert together.buckets() == Histogram(iter(values)).buckets()


def test_what_would_overflow_a_bucket_is_refused_with_those_before_it_counted() -> None:
    histogram = Histogram()
    histogram.record(5, MAX_COUNT - 1)
    with pytest.raises(LimitError, match="bucket"):
        histogram.record_many([7, 5, 5, 9])
    assert histogram.count == MAX_COUNT + 1
    assert histogram.max == 7
