"""Vector instructions for numba: the inner loops of row passes as LLVM code, and what such loops are made of.

A row's block B of the factor has m lines, one for each entry. Its columns come in pieces of ``BYTES``; what is beyond
the rank is zero. Each function here is a loop, or a single step, on pieces that stay in registers throughout. LLVM
turns a piece into what the processor has: one register with AVX-512, two with AVX2, four with NEON. numba alone would
go through memory after every product, because two arrays might overlap.

numba's cache knows when the file of a kernel changes, not this one: remove ``__pycache__`` after a change here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

BYTES = 64  # of a piece: 16 numbers in single precision, 8 in double

INDEX = ir.IntType(64)


class _Array:
    """A C-contiguous array in code under construction: its pieces, of so many lanes, and its single numbers."""

    def __init__(
        self, context: Any, builder: ir.IRBuilder, kind: types.Array, value: ir.Value, lanes: int | None = None
    ) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.builder, self.data = builder, array.data
        self.width = cgutils.unpack_tuple(builder, array.shape)[-1]
        self.number = context.get_data_type(kind.dtype)
        self.size = np.dtype(str(kind.dtype)).itemsize
        self.lanes = lanes or BYTES // self.size
        self.piece = ir.VectorType(self.number, self.lanes)
        self.zero = ir.Constant(self.piece, [ir.Constant(self.number, 0.0)] * self.lanes)

    def _address(self, line: ir.Value | None, column: ir.Value) -> ir.Value:
        if line is not None:
            column = self.builder.add(self.builder.mul(line, self.width), column)
        return self.builder.gep(self.data, [column])

    def load(self, line: ir.Value | None, column: ir.Value) -> ir.Value:
        pointer = self.builder.bitcast(self._address(line, column), self.piece.as_pointer())
        return self.builder.load(pointer, align=self.size)

    def store(self, piece: ir.Value, line: ir.Value | None, column: ir.Value) -> None:
        pointer = self.builder.bitcast(self._address(line, column), self.piece.as_pointer())
        self.builder.store(piece, pointer, align=self.size)

    def add(self, piece: ir.Value, line: ir.Value, column: ir.Value) -> None:
        """Add a piece of this precision or a lower one to what is there."""
        kind = ir.VectorType(self.number, piece.type.count)
        if piece.type != kind:
            piece = self.builder.fpext(piece, kind)
        pointer = self.builder.bitcast(self._address(line, column), kind.as_pointer())
        old = self.builder.load(pointer, align=self.size)
        self.builder.store(self.builder.fadd(old, piece), pointer, align=self.size)

    def number_at(self, column: ir.Value) -> ir.Value:
        """A single number of the array."""
        return self.builder.load(self._address(None, column))

    def broadcast(self, line: ir.Value | None, column: ir.Value) -> ir.Value:
        """A number of the array in every lane."""
        return broadcast(self.builder, self.builder.load(self._address(line, column)), self.lanes)

    def total(self, piece: ir.Value) -> ir.Value:
        """The sum over lanes."""
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{8 * self.size}"
        kind = ir.FunctionType(self.number, [self.number, self.piece])
        add = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(add, [ir.Constant(self.number, 0.0), piece], fastmath=("reassoc",))


def broadcast(builder: ir.IRBuilder, number: ir.Value, lanes: int) -> ir.Value:
    """A number in every lane."""
    empty, first = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined), ir.Constant(ir.IntType(32), 0)
    filled = builder.insert_element(empty, number, first)
    return builder.shuffle_vector(filled, empty, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


def index(builder: ir.IRBuilder, array: _Array, at: ir.Value) -> ir.Value:
    """A whole number of an array, as wide as positions are."""
    number = array.number_at(at)
    return number if number.type == INDEX else builder.sext(number, INDEX)


def double(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """A number in double precision."""
    return number if number.type == ir.DoubleType() else builder.fpext(number, ir.DoubleType())


def multiply_add(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x y + z, in one step where the processor has it."""
    flags = ("contract", "reassoc")
    return builder.fadd(builder.fmul(x, y, flags=flags), z, flags=flags)


def constant(number: int) -> ir.Constant:
    """A position."""
    return ir.Constant(INDEX, number)


class Loop:
    """A loop that carries pieces: ``carried`` at its top, to be set to what the next turn begins with."""

    def __init__(self, builder: ir.IRBuilder, starts: list[ir.Value]) -> None:
        before, self.body = builder.block, builder.append_basic_block("turn")
        builder.branch(self.body)
        builder.position_at_end(self.body)
        self.builder, self.counter = builder, builder.phi(INDEX)
        self.counter.add_incoming(constant(0), before)
        self.carried = [builder.phi(start.type) for start in starts]
        for phi, start in zip(self.carried, starts, strict=True):
            phi.add_incoming(start, before)

    def end(self, results: list[ir.Value], step: int, stop: ir.Value) -> None:
        """Another turn, unless the counter has come to ``stop``; at least one is made."""
        builder, after = self.builder, self.builder.append_basic_block("after")
        counter = builder.add(self.counter, constant(step))
        self.counter.add_incoming(counter, self.body)
        for phi, result in zip(self.carried, results, strict=True):
            phi.add_incoming(result, self.body)
        builder.cbranch(builder.icmp_signed("<", counter, stop), self.body, after)
        builder.position_at_end(after)


def arrays(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, lanes: int | None = None) -> list[Any]:
    """The arguments, arrays among them wrapped; pieces have so many lanes, or as many as ``BYTES`` hold."""
    return [
        _Array(context, builder, kind, argument, lanes) if isinstance(kind, types.Array) else argument
        for kind, argument in zip(signature.args, arguments, strict=True)
    ]


@intrinsic
def lanes(_: Any, X: Any) -> Any:
    """How many numbers of an array a piece holds: a constant, so that loops over pieces need no division."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return constant(arrays(context, builder, signature, arguments)[0].lanes)

    return types.intp(X), code


@intrinsic
def gather(_: Any, X: Any, columns: Any, start: Any, m: Any, c: Any, kept: Any, B: Any) -> Any:
    """B[k, c:c + kept] = X[columns[start + k], c:c + kept] for m lines, and zero in the rest of the piece."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        X, columns, start, m, c, kept, B = arrays(context, builder, signature, arguments)
        places = ir.Constant(ir.VectorType(INDEX, X.lanes), list(range(X.lanes)))
        inside = builder.icmp_signed("<", places, broadcast(builder, kept, X.lanes))
        loop = Loop(builder, [])
        j = index(builder, columns, builder.add(start, loop.counter))
        B.store(builder.select(inside, X.load(j, c), X.zero), loop.counter, c)
        loop.end([], 1, m)
        return context.get_dummy_value()

    return types.void(X, columns, *[types.intp] * 4, B), code


@intrinsic
def centred(_: Any, values: Any, center: Any, at: Any, columns: Any, start: Any, m: Any, v: Any) -> Any:
    """v[k] = u (values[start + k] − c) for m entries; the line of center has c and u from ``at`` on, c in two numbers
    unless they are doubles."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        values, center, at, columns, start, m, v = arrays(context, builder, signature, arguments)
        loop = Loop(builder, [])
        entry = builder.add(start, loop.counter)
        j = index(builder, columns, entry)
        numbers = range(2 if center.size == 8 else 3)
        places = [values._address(None, entry), *(center._address(j, builder.add(at, constant(n))) for n in numbers)]
        value, *parts, unit = (double(builder, builder.load(place)) for place in places)
        for part in parts:
            value = builder.fsub(value, part)
        value = builder.fmul(unit, value)
        value = value if v.size == 8 else builder.fptrunc(value, v.number)
        builder.store(value, v._address(None, loop.counter))
        loop.end([], 1, m)
        return context.get_dummy_value()

    return types.void(values, center, types.intp, columns, types.intp, types.intp, v), code


@intrinsic
def prefetch(_: Any, X: Any, columns: Any, start: Any, m: Any, c: Any) -> Any:
    """Begin to fetch X[columns[start + k], c:] for m lines, which will be needed soon."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        X, columns, start, m, c = arrays(context, builder, signature, arguments)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        loop = Loop(builder, [])
        j = index(builder, columns, builder.add(start, loop.counter))
        address = builder.bitcast(X._address(j, c), byte)
        builder.call(fetch, [address, *(ir.Constant(number, hint) for hint in (0, 3, 1))])  # to read, to stay, data
        loop.end([], 1, m)
        return context.get_dummy_value()

    return types.void(X, columns, types.intp, types.intp, types.intp), code


@intrinsic
def weighted_sum(_: Any, v: Any, m: Any, B: Any, c: Any, b: Any) -> Any:
    """b[c:] = Σ_k v[k] B[k, c:] over m lines, one piece."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        v, m, B, c, b = arrays(context, builder, signature, arguments)
        loop = Loop(builder, [B.zero])
        sums = multiply_add(builder, v.broadcast(None, loop.counter), B.load(loop.counter, c), loop.carried[0])
        loop.end([sums], 1, m)
        b.store(sums, None, c)
        return context.get_dummy_value()

    return types.void(v, types.intp, B, types.intp, b), code


def _gram(most: int) -> Any:
    """A[p:p + most, q:] = Σ_k B[k, p:p + most] B[k, q:] over m lines, one piece wide."""

    @intrinsic
    def gram(_: Any, B: Any, m: Any, p: Any, q: Any, A: Any) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            B, m, p, q, A = arrays(context, builder, signature, arguments)
            lines = [builder.add(p, constant(a)) for a in range(min(most, B.lanes))]
            loop = Loop(builder, [B.zero] * len(lines))
            x = B.load(loop.counter, q)
            sums = [
                multiply_add(builder, B.broadcast(loop.counter, line), x, total)
                for line, total in zip(lines, loop.carried, strict=True)
            ]
            loop.end(sums, 1, m)
            for line, total in zip(lines, sums, strict=True):
                A.store(total, line, q)
            return context.get_dummy_value()

        return types.void(B, types.intp, types.intp, types.intp, A), code

    return gram


gram_4, gram_8, gram_12, gram_16 = (_gram(most) for most in (4, 8, 12, 16))


def _products(
    builder: ir.IRBuilder, B: _Array, lines: list[ir.Value], A: _Array, r: ir.Value, q: ir.Value
) -> list[Any]:
    """B[line, :r] A[:r, q:] for each line, one piece wide; r is even."""
    n = len(lines)
    loop = Loop(builder, [B.zero] * (2 * n))  # two sums for each line: one would wait for itself
    sums = []
    for half in range(2):
        a = builder.add(loop.counter, constant(half))
        x = A.load(a, q)
        sums += [
            multiply_add(builder, B.broadcast(line, a), x, total)
            for line, total in zip(lines, loop.carried[n * half :], strict=False)
        ]
    loop.end(sums, 2, r)
    return [builder.fadd(even, odd) for even, odd in zip(sums[:n], sums[n:], strict=True)]


@intrinsic
def products(_: Any, B: Any, k: Any, A: Any, r: Any, q: Any, P: Any) -> Any:
    """P[k:k + 4, q:] = B[k:k + 4, :r] A[:r, q:], one piece wide; r is even."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        B, k, A, r, q, P = arrays(context, builder, signature, arguments)
        lines = [builder.add(k, constant(i)) for i in range(4)]
        for line, product in zip(lines, _products(builder, B, lines, A, r, q), strict=True):
            P.store(product, line, q)
        return context.get_dummy_value()

    return types.void(B, types.intp, A, types.intp, types.intp, P), code


def _scattered_products(n: int) -> Any:
    """G[j, q:] += w (B[k, :r] A[:r, q:] − v[k] b[q:]) for so many lines from k, j = columns[start + k]; r is even."""

    @intrinsic
    def scattered_products(
        _: Any, B: Any, k: Any, A: Any, r: Any, q: Any, G: Any, columns: Any, start: Any, w: Any, v: Any, b: Any
    ) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            B, k, A, r, q, G, columns, start, w, v, b = arrays(context, builder, signature, arguments)
            lines = [builder.add(k, constant(i)) for i in range(n)]
            sums = _products(builder, B, lines, A, r, q)
            w, b = broadcast(builder, w, G.lanes), builder.fneg(b.load(None, q))
            for line, product in zip(lines, sums, strict=True):
                j = index(builder, columns, builder.add(start, line))
                change = multiply_add(builder, v.broadcast(None, line), b, product)
                G.store(multiply_add(builder, w, change, G.load(j, q)), j, q)
            return context.get_dummy_value()

        kinds = (B, types.intp, A, types.intp, types.intp, G, columns, types.intp, G.dtype, v, b)
        return types.void(*kinds), code

    return scattered_products


scattered_products_4, scattered_products_2, scattered_products_1 = (_scattered_products(n) for n in (4, 2, 1))


@intrinsic
def inner(_: Any, A: Any, i: Any, B: Any, j: Any) -> Any:
    """Σ_c A[i, c] B[j, c] over all columns."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        A, i, B, j = arrays(context, builder, signature, arguments)
        loop = Loop(builder, [A.zero])
        sums = multiply_add(builder, A.load(i, loop.counter), B.load(j, loop.counter), loop.carried[0])
        loop.end([sums], A.lanes, A.width)
        return A.total(sums)

    return A.dtype(A, types.intp, B, types.intp), code


@intrinsic
def sum_of_squares(_: Any, A: Any, lines: Any) -> Any:
    """Σ A[a, c]² over the first lines."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        A, lines = arrays(context, builder, signature, arguments)
        loop = Loop(builder, [A.zero])
        x = A.load(None, loop.counter)
        sums = multiply_add(builder, x, x, loop.carried[0])
        loop.end([sums], A.lanes, builder.mul(lines, A.width))
        return A.total(sums)

    return A.dtype(A, types.intp), code


def _sum_of_lines(pieces: int) -> Any:
    """out[k, c:] += Σ table[lines[e], c:] over e from start to stop, so many pieces wide."""

    @intrinsic
    def sum_of_lines(_: Any, lines: Any, start: Any, stop: Any, table: Any, c: Any, out: Any, k: Any) -> Any:
        def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            lines, start, stop, table, c, out, k = arrays(context, builder, signature, arguments)
            columns = [builder.add(c, constant(p * table.lanes)) for p in range(pieces)]
            loop = Loop(builder, [table.zero] * pieces)
            line = index(builder, lines, builder.add(start, loop.counter))
            sums = [
                builder.fadd(table.load(line, column), total)
                for column, total in zip(columns, loop.carried, strict=True)
            ]
            loop.end(sums, 1, builder.sub(stop, start))
            for column, total in zip(columns, sums, strict=True):
                out.add(total, k, column)
            return context.get_dummy_value()

        return types.void(lines, types.intp, types.intp, table, types.intp, out, types.intp), code

    return sum_of_lines


sum_of_lines_1, sum_of_lines_2, sum_of_lines_4, sum_of_lines_8 = (_sum_of_lines(pieces) for pieces in (1, 2, 4, 8))


@intrinsic
def weighted_sum_of_lines(
    _: Any, factors: Any, lines: Any, start: Any, stop: Any, table: Any, c: Any, out: Any, k: Any
) -> Any:
    """out[k, c:] += Σ factors[e] table[lines[e], c:] over e from start to stop, one piece."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        factors, lines, start, stop, table, c, out, k = arrays(context, builder, signature, arguments)
        loop = Loop(builder, [table.zero])
        at = builder.add(start, loop.counter)
        line = index(builder, lines, at)
        sums = multiply_add(builder, factors.broadcast(None, at), table.load(line, c), loop.carried[0])
        loop.end([sums], 1, builder.sub(stop, start))
        out.add(sums, k, c)
        return context.get_dummy_value()

    return types.void(factors, lines, types.intp, types.intp, table, types.intp, out, types.intp), code


@intrinsic
def eliminate(_: Any, R: Any, i: Any, j: Any, p: Any, q: Any, n: Any, s: Any) -> Any:
    """R[i] = R[s] (R[j] − Σ_t R[p + t] R[q + t]) over n lines, lane by lane; a line is one piece, and n is positive."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        R, i, j, p, q, n, s = arrays(context, builder, signature, arguments)
        first = constant(0)
        loop = Loop(builder, [R.zero])
        x = R.load(builder.add(p, loop.counter), first)
        sums = multiply_add(builder, x, R.load(builder.add(q, loop.counter), first), loop.carried[0])
        loop.end([sums], 1, n)
        R.store(builder.fmul(R.load(s, first), builder.fsub(R.load(j, first), sums)), i, first)
        return context.get_dummy_value()

    return types.void(R, *[types.intp] * 6), code
