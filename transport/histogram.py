"""Counts by logarithmic bucket: quantiles of latencies that stay true when they are added up.

One rule: for a recorded value whose size is between `MIN_VALUE` and `MAX_VALUE`, a quantile is
within `RELATIVE_ERROR` of the value that truly has that rank, however the values were split,
weighted and merged on the way. (Float arithmetic adds about 1e-13 of the value to that.)

Bucket `b > 0` holds the values v with GAMMA^(b-1-OFFSET) < v <= GAMMA^(b-OFFSET), bucket `-b` the
same values negated (latencies are negative when clocks disagree), bucket 0 holds zero. Buckets
are therefore in the order of the values, and adding two histograms is adding counts by bucket:

    … -2   -1 | 0 | 1    2 …  1037    1038 …      3110
              zero  1e-9 …    1       1.02 …      1e18

It sits beside the data path: whoever measures records here, whoever reports reads quantiles, and
`to_bytes` is what travels between them. A record costs one logarithm, one dictionary write and
one list append; lists of whole numbers, such as latencies, are counted in C (`_histogram.pyx`).
A histogram is not locked: one thread writes, or the caller locks.

The bytes, integers as little-endian base-128 varints of minimal length, floats as little-endian
binary64. There is one encoding of a histogram, and `from_bytes` accepts no other:

    version (1 byte) | buckets n | and if n > 0: min | max | parts p | p floats | n × entry
    entry: key | count     key = 2 × step + (1 if the count is a float, 0 if it is a varint)
                           step = bucket - the bucket before it (-MAX_BUCKET - 1 for the first)
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from math import ceil, exp, fsum, inf, log
from typing import TYPE_CHECKING

from .datagrams import COMPILED
from .errors import LimitError, Malformed

RELATIVE_ERROR = 0.01
"""How far a quantile may be from the true value, as a part of that value."""
GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
"""The ratio of a bucket's upper to its lower edge: the widest one midpoint can stand for."""
LN_GAMMA = 0.020000666706669525
"""ln(GAMMA), written out so that every program divides by the same number."""
OFFSET = 1037
"""Makes the bucket of `MIN_VALUE` number 1, which leaves 0 for zero and the rest for the sign."""
MIN_VALUE = 1e-9
"""Sizes below it, except zero, are counted in its bucket: a nanosecond in seconds."""
MAX_VALUE = 1e18
"""Sizes above it are counted in its bucket: 31 years in nanoseconds."""
MAX_BUCKET = 3110
"""The bucket of `MAX_VALUE`. With zero and the negative side there are 2 × 3110 + 1 buckets."""
VALUE_LIMIT = 1e200
"""Sizes above it are refused, as are NaN and infinity: the sum must stay finite."""
MIN_WEIGHT = 1e-9
"""Weights below it are refused: no sampling rate asks for them."""
MAX_COUNT = 2**63 - 1
"""A record or merge that would bring a bucket above it is refused: a signed 64-bit column."""
FORMAT_VERSION = 1

_SUM_LIMIT = 1e250  # above MAX_COUNT in every bucket of VALUE_LIMIT, far below overflow
_SETTLE_AT = 256  # terms of the sum kept before they are folded: spreads the cost of folding
_MAX_VARINT_BYTES = 9  # 63 bits
_MAX_PARTS = 36  # of 53 bits or more each, from _SUM_LIMIT (2^831) down to 2^-1074
_MAX_BYTES = 32 + 8 * _MAX_PARTS + (2 * MAX_BUCKET + 1) * (2 + _MAX_VARINT_BYTES)
_FLOAT = struct.Struct("<d")

Weight = int | float


def bucket_of(value: float) -> int:
    """Return the bucket of `value`, from `-MAX_BUCKET` to `MAX_BUCKET`.

    This mapping is part of the format and does not change. In Spark SQL:

        CAST(SIGN(v) * (CEIL(LN(LEAST(GREATEST(ABS(v), 1e-9D), 1e18D)) / 0.020000666706669525D)
             + 1037) AS INT)

    Sizes outside `MIN_VALUE` to `MAX_VALUE` get the bucket of the nearer bound. A logarithm that
    differs in its last bit may put a value on the very edge of a bucket into the neighbour.
    Raises LimitError for NaN, infinity and sizes above `VALUE_LIMIT`.
    """
    if MIN_VALUE <= value <= MAX_VALUE:
        return ceil(log(value) / LN_GAMMA) + OFFSET
    if not -VALUE_LIMIT <= value <= VALUE_LIMIT:
        raise LimitError(f"value is {value!r:.40}, expected a number within ±{VALUE_LIMIT:g}")
    if value > 0:
        return 1 if value < MIN_VALUE else MAX_BUCKET
    return -bucket_of(-value) if value < 0 else 0


def value_of(bucket: int) -> float:
    """Return the value that stands for `bucket`: equally far, in relation, from both edges.

    Raises LimitError for a number that no value has as its bucket.
    """
    if not -MAX_BUCKET <= bucket <= MAX_BUCKET:
        raise LimitError(f"bucket is {bucket}, expected a number within ±{MAX_BUCKET}")
    if bucket == 0:
        return 0.0
    size = (1 - RELATIVE_ERROR) * exp((abs(bucket) - OFFSET) * LN_GAMMA)
    return size if bucket > 0 else -size


class Histogram:
    """Counts by bucket, with the exact sum, least and greatest of the recorded values.

    Addition is commutative and associative to the last bit, the sum included, as long as weights
    are ints. Float weights are added as floats, so there the counts are associative to rounding.
    """

    __slots__ = ("_counts", "_max", "_min", "_terms")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._counts: dict[int, Weight] = {}
        self._min = inf
        self._max = -inf
        self._terms: list[float] = []  # their exact sum is the sum
        self.record_many(values)

    def record(self, value: float, weight: Weight = 1) -> None:
        """Count `value` as `weight` values; an int is taken as the nearest float.

        Raises LimitError, and records nothing, for a value or weight outside its limits.
        """
        if MIN_VALUE <= value <= MAX_VALUE:  # bucket_of, without the cost of a call
            bucket = ceil(log(value) / LN_GAMMA) + OFFSET
        else:
            bucket = bucket_of(value)
        if weight != 1 and not MIN_WEIGHT <= weight <= MAX_COUNT:
            raise LimitError(f"weight is {weight!r:.40}, expected {MIN_WEIGHT:g} to {MAX_COUNT}")
        counts, terms = self._counts, self._terms
        count = counts.get(bucket, 0) + weight
        if count > MAX_COUNT:
            raise LimitError(f"bucket {bucket} would count {count}, the limit is {MAX_COUNT}")
        counts[bucket] = count
        if not self._min <= value <= self._max:
            value += 0.0  # an int becomes a float, and -0.0 becomes 0.0
            self._min = min(self._min, value)
            self._max = max(self._max, value)
        terms.append(value * weight)
        if len(terms) >= _SETTLE_AT:
            self._terms = _exact_parts(terms)

    def record_many(self, values: Iterable[float]) -> None:
        """Count each of `values` once; those before a refused one stay counted."""
        tallied = _tally(values) if type(values) is list else None
        if tallied is not None and self._add_tally(*tallied):
            return
        record = self.record
        for value in values:
            record(value)

    def _add_tally(self, tally: dict[int, int], least: int, greatest: int, total: int) -> bool:
        """Adds what has been counted; False, and changes nothing, where a bucket would overflow."""
        counts = {bucket: count + self._counts.get(bucket, 0) for bucket, count in tally.items()}
        if max(counts.values()) > MAX_COUNT:
            return False
        self._counts.update(counts)
        self._min = min(self._min, float(least))
        self._max = max(self._max, float(greatest))
        while total:  # as floats that add up to it exactly
            part = float(total)
            self._terms.append(part)
            total -= int(part)
        if len(self._terms) >= _SETTLE_AT:
            self._terms = _exact_parts(self._terms)
        return True

    def merge(self, other: "Histogram") -> None:
        """Add the counts of `other`, as if its values had been recorded here.

        Raises LimitError, and changes nothing, if a bucket would pass `MAX_COUNT`.
        """
        counts = {key: self._counts.get(key, 0) + n for key, n in other._counts.items()}
        if (highest := max(counts.values(), default=0)) > MAX_COUNT:
            raise LimitError(f"a bucket would count {highest}, the limit is {MAX_COUNT}")
        self._counts.update(counts)
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)
        self._terms = _exact_parts(self._terms + other._terms)

    def copy(self) -> "Histogram":
        """Return an independent histogram with the same content."""
        return Histogram().__iadd__(self)

    def __iadd__(self, other: "Histogram") -> "Histogram":
        self.merge(other)
        return self

    def __add__(self, other: "Histogram") -> "Histogram":
        return self.copy().__iadd__(other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self._content() == other._content()

    def _content(self) -> tuple[object, ...]:
        return self._counts, self._min, self._max, _exact_parts(self._terms)

    def __repr__(self) -> str:
        return f"<Histogram count={self.count} min={self.min} max={self.max}>"

    @property
    def count(self) -> Weight:
        """The total weight: an int as long as every weight was one."""
        counts = self._counts.values()
        return sum(counts) if all(isinstance(count, int) for count in counts) else fsum(counts)

    @property
    def sum(self) -> float:
        """The sum of value × weight: the products are rounded, their sum only once, at the end."""
        return fsum(self._terms)

    @property
    def min(self) -> float | None:
        """The least value recorded, exactly; None if there is none."""
        return self._min if self._counts else None

    @property
    def max(self) -> float | None:
        """The greatest value recorded, exactly; None if there is none."""
        return self._max if self._counts else None

    @property
    def mean(self) -> float | None:
        """The sum divided by the count, within `min` and `max`; None if there is no value."""
        return self._within(self.sum / self.count) if self._counts else None

    def buckets(self) -> dict[int, Weight]:
        """Return a copy of the counts, in ascending order of bucket."""
        return dict(sorted(self._counts.items()))

    def quantile(self, q: float) -> float | None:
        """Return the value of rank `q`, from 0 (`min`) to 1 (`max`); None if there is no value.

        That is the least recorded value such that the weights of all values up to and including
        it add up to at least `q * count`, that product being a float. It is known by its bucket,
        so the answer is `value_of` that bucket, moved into `min` to `max`.
        Raises LimitError for a `q` outside 0 to 1.
        """
        return self.quantiles((q,))[0]

    def quantiles(self, qs: Iterable[float]) -> list[float | None]:
        """Return `quantile` of each of `qs`, in the order given, sorting the buckets once."""
        buckets = self.buckets()
        keys, upto, total = list(buckets), list(accumulate(buckets.values())), self.count
        answers: list[float | None] = []
        for q in qs:
            if not 0 <= q <= 1:
                raise LimitError(f"quantile is {q!r:.40}, expected 0 to 1")
            if not keys:
                answers.append(None)
            elif q in (0, 1):
                answers.append(self._max if q else self._min)
            else:
                # Rounding of float weights can leave the last of `upto` just below the rank.
                at = min(bisect_left(upto, q * total), len(keys) - 1)
                answers.append(self._within(value_of(keys[at])))
        return answers

    def _within(self, value: float) -> float:
        return min(max(value, self._min), self._max)

    def to_bytes(self) -> bytes:
        """Return the encoding that the head of this module shows."""
        out = bytearray((FORMAT_VERSION,))
        _put_varint(out, len(self._counts))
        if self._counts:
            parts = _exact_parts(self._terms)
            out += _FLOAT.pack(self._min) + _FLOAT.pack(self._max)
            _put_varint(out, len(parts))
            out += b"".join(map(_FLOAT.pack, parts))
        before = -MAX_BUCKET - 1
        for bucket, count in self.buckets().items():
            _put_varint(out, 2 * (bucket - before) + (not isinstance(count, int)))
            if isinstance(count, int):
                _put_varint(out, count)
            else:
                out += _FLOAT.pack(count)
            before = bucket
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Histogram":
        """Return the histogram whose `to_bytes` is exactly `data`.

        Work and memory are at most in proportion to the length. Raises Malformed, with reason
        `version`, `truncated`, `trailing` or `nonsense`, for everything else.
        """
        size = memoryview(data).nbytes
        if size > _MAX_BYTES:
            raise Malformed("trailing", f"{size} bytes, a histogram has at most {_MAX_BYTES}")
        reader = _Reader(data := bytes(data))
        if (version := reader.take(1)[0]) != FORMAT_VERSION:
            raise Malformed("version", f"version {version}, expected {FORMAT_VERSION}")
        self = cls()
        if n := reader.varint():
            self._min = reader.number(-VALUE_LIMIT, VALUE_LIMIT)
            self._max = reader.number(self._min, VALUE_LIMIT)
            if (parts := reader.varint()) > _MAX_PARTS:
                raise Malformed("nonsense", f"sum in {parts} parts, {_MAX_PARTS} are enough")
            self._terms = [reader.number(-_SUM_LIMIT, _SUM_LIMIT) for _ in range(parts)]
            self._counts = reader.counts(n)
            # One bucket of grace: the writer's logarithm may differ in its last bit.
            for value, bucket in (self._min, min(self._counts)), (self._max, max(self._counts)):
                if abs(bucket_of(value) - bucket) > 1:
                    raise Malformed("nonsense", f"outermost bucket {bucket} cannot hold {value!r}")
        if reader.at != size:
            raise Malformed("trailing", f"histogram ends at byte {reader.at}, data has {size}")
        if self.to_bytes() != data:
            raise Malformed("nonsense", "a padded varint, or parts of the sum that overlap")
        return self


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise Malformed("truncated", f"field ends at byte {self.at}, data has {len(self.data)}")
        return self.data[start : self.at]

    def varint(self) -> int:
        number = 0
        for place in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return number
        raise Malformed("nonsense", f"varint at byte {self.at} has over {_MAX_VARINT_BYTES} bytes")

    def number(self, low: float, high: float) -> float:
        value: float = _FLOAT.unpack(self.take(8))[0]
        if not low <= value <= high:  # NaN comes here too
            raise Malformed("nonsense", f"{value!r} before byte {self.at}, limits {low!r} {high!r}")
        return value

    def counts(self, n: int) -> dict[int, Weight]:
        counts: dict[int, Weight] = {}
        bucket = -MAX_BUCKET - 1
        for _ in range(n):
            step, is_float = divmod(self.varint(), 2)
            count = self.number(MIN_WEIGHT, MAX_COUNT) if is_float else self.varint()
            bucket += step
            if not step or bucket > MAX_BUCKET or not count:
                raise Malformed("nonsense", f"bucket {bucket} before byte {self.at} counts {count}")
            counts[bucket] = count
        return counts


def _exact_parts(terms: list[float]) -> list[float]:
    """Return the one list of floats that adds up to `terms` exactly, each rounding what is left.

    `fsum` rounds once. Taking its answer away and asking again gives what it rounded off.
    """
    parts: list[float] = []
    left = terms.copy()
    while part := fsum(left):
        parts.append(part)
        left.append(-part)
    return parts


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


if TYPE_CHECKING or COMPILED:
    from ._histogram import tally as _tally
else:

    def _tally(values: object) -> None:
        """Nothing is counted together."""
