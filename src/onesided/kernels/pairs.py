"""Kernels over pairs of columns: the sums of products on Ω, and the paper's loss over them.

Two inner loops are written out as LLVM code, so that what a loop adds to stays in registers, and the sums of one pair
are read and written together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from onesided.arrays import Array
from onesided.kernels.bundles import ByColumn, CompressedPairs, Rows
from onesided.kernels.jit import jit
from onesided.kernels.llvm import Loop, arrays, constant, double, index, multiply_add

PIECE = 4  # numbers of a factor's line that are taken together; its width is a multiple

DOUBLE = ir.DoubleType()


def _add_products(ones: int, lanes: int) -> Any:
    """line[j] += first · (1, …, 1, x, x², 0, …), with so many ones, for entries x at columns j of a piece of a row."""

    @intrinsic
    def add_products(_: Any, columns: Any, values: Any, start: Any, stop: Any, first: Any, line: Any) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            columns, values, start, stop, first, line = arrays(context, builder, signature, arguments, lanes)
            factors = first.load(None, constant(0))
            fixed = [ir.Constant(DOUBLE, float(k < ones)) for k in range(lanes)]
            with cgutils.for_range_slice(builder, start, stop, constant(1)) as (k, _):
                x = double(builder, values.number_at(k))
                powers: Any = ir.Constant(ir.VectorType(DOUBLE, lanes), fixed)
                powers = builder.insert_element(powers, x, constant(ones))
                powers = builder.insert_element(powers, builder.fmul(x, x), constant(ones + 1))
                record = builder.mul(index(builder, columns, k), constant(lanes))
                line.store(multiply_add(builder, factors, powers, line.load(None, record)), None, record)
            return context.get_dummy_value()

        return types.void(columns, values, types.intp, types.intp, first, line), code

    return add_products


FULL, FEW = 4, 8  # more than one in four columns is nearly full, less than one in eight words of bits is few
PLAIN, WEIGHTED = 4, 8  # numbers kept for a pair: rows, Σp, Σp²; or rows, Σw, Σw², Σwp, Σwp²; then zeros
_add_plain, _add_weighted = _add_products(1, PLAIN), _add_products(3, WEIGHTED)


@intrinsic
def _inner_products(_: Any, columns: Any, start: Any, stop: Any, X: Any, i: Any, out: Any) -> Any:
    """out[k] = Σ_c X[i, c] X[columns[start + k], c] up to ``stop``, four at a time: ``out`` has room for three more."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        columns, start, stop, X, i, out = arrays(context, builder, signature, arguments, PIECE)
        last = builder.sub(stop, constant(1))
        with cgutils.for_range_slice(builder, start, stop, constant(4)) as (k, _):
            others = []
            for step in range(4):
                at = builder.add(k, constant(step))
                at = builder.select(builder.icmp_signed("<", at, last), at, last)
                others.append(index(builder, columns, at))
            loop = Loop(builder, [X.zero] * 4)
            x = X.load(i, loop.counter)
            sums = [
                multiply_add(builder, x, X.load(j, loop.counter), total)
                for j, total in zip(others, loop.carried, strict=True)
            ]
            loop.end(sums, PIECE, X.width)
            halves = _added_pairs(builder, sums[0], sums[1]), _added_pairs(builder, sums[2], sums[3])
            low, high = _chosen(builder, *halves, [0, 1, 4, 5]), _chosen(builder, *halves, [2, 3, 6, 7])
            out.store(builder.fadd(low, high), None, builder.sub(k, start))
        return context.get_dummy_value()

    return types.void(columns, types.intp, types.intp, X, types.intp, out), code


def _chosen(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, lanes: list[int]) -> ir.Value:
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def _added_pairs(builder: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """(x₀ + x₁, y₀ + y₁, x₂ + x₃, y₂ + y₃)."""
    return builder.fadd(_chosen(builder, x, y, [0, 4, 2, 6]), _chosen(builder, x, y, [1, 5, 3, 7]))


def _exchange(pieces: int) -> Any:
    """G[i, c:] += Σ_k errors[k] X[j, c:] and G[j, c:] += errors[k] X[i, c:] for j = columns[start + k] ≠ i."""

    @intrinsic
    def exchange(_: Any, columns: Any, start: Any, stop: Any, errors: Any, X: Any, i: Any, c: Any, G: Any) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            columns, start, stop, errors, X, i, c, G = arrays(context, builder, signature, arguments, PIECE)
            places = [builder.add(c, constant(PIECE * k)) for k in range(pieces)]
            x = [X.load(i, place) for place in places]
            loop = Loop(builder, [G.load(i, place) for place in places])
            j = index(builder, columns, builder.add(start, loop.counter))
            error = errors.broadcast(None, loop.counter)
            sums = [
                multiply_add(builder, error, X.load(j, place), total)
                for place, total in zip(places, loop.carried, strict=True)
            ]
            for place, piece in zip(places, x, strict=True):
                G.store(multiply_add(builder, error, piece, G.load(j, place)), j, place)
            loop.end(sums, 1, builder.sub(stop, start))
            for place, total in zip(places, sums, strict=True):
                G.store(total, i, place)
            return context.get_dummy_value()

        return types.void(columns, types.intp, types.intp, errors, X, types.intp, types.intp, G), code

    return exchange


_exchange_1, _exchange_2, _exchange_3, _exchange_4 = (_exchange(pieces) for pieces in range(1, 5))


def _counted_bits(name: str) -> Any:
    @intrinsic
    def bits(_: Any, word: Any) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            no_zero = [ir.Constant(ir.IntType(1), 1)] if name == "cttz" else []
            return getattr(builder, name)(arguments[0], *no_zero)

        return types.uint64(types.uint64), code

    return bits


_lowest_bit, _bits_set = _counted_bits("cttz"), _counted_bits("ctpop")


@jit
def by_column(rows: Rows, into: ByColumn) -> Array:
    """``into`` has room for every column and one more, and for every entry."""
    starts, entries, columns = into.starts, into.entries, rows.columns
    starts[:] = 0
    for u in range(len(rows.starts)):
        if rows.weights[u] > 0:
            for entry in range(rows.starts[u], rows.stops[u]):
                starts[columns[entry] + 1] += 1
    for j in range(1, len(starts)):
        starts[j] += starts[j - 1]
    free, products = starts[:-1].copy(), np.zeros(len(starts) - 1, np.int64)
    for u in range(len(rows.starts)):
        if rows.weights[u] > 0:
            for entry in range(rows.starts[u], rows.stops[u]):
                j = columns[entry]
                entries[free[j], 0], entries[free[j], 1] = entry, u
                free[j] += 1
                products[j] += rows.stops[u] - entry
    return products


@jit
def _meet(columns: Array, start: int, stop: int, met: Array) -> None:
    """Set a bit for each column of a piece of a row."""
    for entry in range(start, stop):
        j = np.uint64(columns[entry])
        met[j >> np.uint64(6)] |= np.uint64(1) << (j & np.uint64(63))


@jit
def row_bits(rows: Rows, n_columns: int) -> Array:
    bits = np.zeros((len(rows.starts), (n_columns >> 6) + 1), np.uint64)
    for u in range(len(rows.starts)):
        _meet(rows.columns, rows.starts[u], rows.stops[u], bits[u])
    return bits


@jit
def pair_counts(chosen: Array, by: ByColumn, rows: Rows, bits: Array) -> Array:
    """Rows given as bits are combined word by word; otherwise each column remembers for which i it was last met."""
    starts, entries = by
    counts = np.zeros(len(chosen), np.int64)
    met = np.empty(bits.shape[1], np.uint64)
    last_met = np.full(0 if len(bits) else len(starts) - 1, -1, np.int32)
    for k in range(len(chosen)):
        i, n = np.int32(chosen[k]), 0
        met[:] = 0
        for at in range(starts[i], starts[i + 1]):
            start, u = entries[at, 0], entries[at, 1]
            if len(bits):
                for word in range(i >> 6, len(met)):
                    met[word] |= bits[u, word]
            else:
                for entry in range(start, rows.stops[u]):
                    j = np.uint32(rows.columns[entry])
                    n += last_met[j] != i
                    last_met[j] = i
        if len(bits):
            met[i >> 6] &= ~np.uint64(0) << np.uint64(i & 63)  # columns from i on
            for word in range(i >> 6, len(met)):
                n += int(_bits_set(met[word]))
        counts[k] = n
    return counts


@jit
def pair_moments(first: int, last: int, by: ByColumn, rows: Rows, out: CompressedPairs) -> None:
    """Column i walks down its rows and adds what stands right of it into one dense line, then collects the line.

    Every pair is summed in one place, in the order of rows: threads over columns cannot change the result. How many
    columns a line has is known. If it is nearly full it is read from end to end; otherwise a bit is set for each column
    met, and the bits are read; and if the columns are few even beside words of bits, they are listed and sorted.
    """
    starts, entries = by
    _, stops, columns, values, weights = rows
    pointers, out_columns, out_rows, out_sums, out_squares, out_totals, out_squared = out
    d, weighted = len(starts) - 1, len(weights) > 0
    line = np.zeros((d, WEIGHTED if weighted else PLAIN))
    factors = np.zeros(WEIGHTED)
    factors[0] = 1.0
    met = np.zeros((d >> 6) + 1, np.uint64)
    at_sums = 3 if weighted else 1
    for i in range(first, last):
        k, stop = pointers[i], pointers[i + 1]
        full, few = (stop - k) * FULL > d - i, (stop - k) * FEW < (d - i) >> 6
        for at in range(starts[i], starts[i + 1]):
            start, u = entries[at, 0], entries[at, 1]
            end, v = stops[u], np.float64(values[start])
            if few:
                for entry in range(start, end):
                    if line[columns[entry], 0] == 0:
                        out_columns[k] = columns[entry]
                        k += 1
            elif not full:
                _meet(columns, start, end, met)
            if weighted:
                w = weights[u]
                factors[1], factors[2], factors[3], factors[4] = w, w * w, w * v, w * v * v
                _add_weighted(columns, values, start, end, factors, line)
            else:
                factors[1], factors[2] = v, v * v
                _add_plain(columns, values, start, end, factors, line)
        if few:
            out_columns[pointers[i] : stop].sort()
        elif full:
            for j in range(i, d):
                if line[j, 0] > 0:
                    out_columns[k] = j
                    k += 1
        else:
            for word in range(i >> 6, len(met)):
                left = met[word]
                met[word] = 0
                while left != 0:
                    out_columns[k] = (word << 6) + np.int64(_lowest_bit(left))
                    left &= left - np.uint64(1)
                    k += 1
        for k in range(pointers[i], stop):
            j = out_columns[k]
            out_rows[k], out_sums[k], out_squares[k] = line[j, 0], line[j, at_sums], line[j, at_sums + 1]
            if weighted:
                out_totals[k], out_squared[k] = line[j, 1], line[j, 2]
            line[j, :] = 0.0


@jit
def find_pairs(indptr: Array, columns: Array, first: Array, second: Array) -> Array:
    """Where the pair (first, second) with first ≤ second stands in compressed rows of columns that ascend; else −1."""
    at = np.empty(len(first), dtype=np.int64)
    for k in range(len(first)):
        low, high = indptr[first[k]], indptr[first[k] + 1]
        end = high
        while low < high:
            middle = (low + high) // 2
            if columns[middle] < second[k]:
                low = middle + 1
            else:
                high = middle
        at[k] = low if low < end and columns[low] == second[k] else -1
    return at


def padded(X: Array) -> Array:
    """A factor as the pair pass takes it, in double precision: zeros added, up to a whole number of pieces."""
    wide = np.zeros((len(X), -(-max(X.shape[1], 1) // PIECE) * PIECE))
    wide[:, : X.shape[1]] = X
    return wide


@jit
def pair_pass(
    first: int, indptr: Array, columns: Array, target: Array, diagonal_weight: float, X: Array
) -> tuple[float, Array]:
    """For each column i: the errors of its pairs, then what they add to the gradients of x_i and of each x_j."""
    width, longest = X.shape[1], 0
    for k in range(len(indptr) - 1):
        longest = max(longest, indptr[k + 1] - indptr[k])
    gradient, errors = np.zeros_like(X), np.empty(longest + 3)
    loss = 0.0
    for k in range(len(indptr) - 1):
        i, start, stop = first + k, indptr[k], indptr[k + 1]
        if start < stop and columns[start] == i:
            _inner_products(columns, start, start + 1, X, i, errors)
            error = errors[0] - target[start]
            loss += 0.5 * diagonal_weight * error * error
            for c in range(width):
                gradient[i, c] += 2.0 * diagonal_weight * error * X[i, c]
            start += 1
        if start == stop:
            continue
        _inner_products(columns, start, stop, X, i, errors)
        line_loss = 0.0
        for entry in range(stop - start):
            error = errors[entry] - target[start + entry]
            line_loss += error * error
            errors[entry] = 2.0 * error
        loss += line_loss
        for c in range(0, width, 4 * PIECE):
            if width - c >= 4 * PIECE:
                _exchange_4(columns, start, stop, errors, X, i, c, gradient)
            elif width - c == 3 * PIECE:
                _exchange_3(columns, start, stop, errors, X, i, c, gradient)
            elif width - c == 2 * PIECE:
                _exchange_2(columns, start, stop, errors, X, i, c, gradient)
            else:
                _exchange_1(columns, start, stop, errors, X, i, c, gradient)
    return loss, gradient
