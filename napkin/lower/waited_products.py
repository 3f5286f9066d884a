"""Products that a loop must not leave to run beside its next iteration.

On Hopper, Triton lets the product of `t = tl.dot(X_tile, Y_tile, t)` run until the next iteration
has begun, and makes room in shared memory for one chunk more. It does not where the loop reads
X_tile for something else as well (Triton 3.6 and 3.9; its pull request 7110): then the copy of a
later chunk overwrites what is still multiplied. It waits for a product that the iteration uses, as
by a cast of the sum to other bits and back, which takes no instruction.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from napkin.lower import syntax as sx
from napkin.lower.printer import comment
from napkin.lower.spelling import Language


def awaited(lang: Language, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """What a loop does at its end so that its products are done."""
    shared = _shared(body)
    found: list[ast.stmt] = [
        sx.assign(target, _there_and_back(lang, target, product))
        for target, product in _sums(body)
        if shared & {n.id for n in _operands(product)}
    ]
    said = comment("products are done here: their tiles are read for something else, too")
    return [said, *found] if found else []


def _there_and_back(lang: Language, target: str, product: ast.Call) -> sx.Expr:
    """The bits of a sum as a number of the other kind, and then as what they are."""
    whole = any(k.arg == "out_dtype" for k in product.keywords)
    value = sx.name(target)
    for dtype in ("float32", "int32") if whole else ("int32", "float32"):
        to = ast.Attribute(value, "to", ast.Load())
        value = sx.call(to, lang.word(dtype), bitcast=True)
    return value


def _sums(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.Call]]:
    """What a product is added to by itself, under its new name, and the product."""
    for s in body:
        match s:
            case ast.Assign([ast.Name(target)], ast.Call(args=[_, _, _]) as product):
                if _called(product, "dot"):
                    yield target, product
            case _:
                pass


def _shared(body: Sequence[ast.stmt]) -> set[str]:
    """The tiles that are loaded, multiplied, and read for something else as well."""
    every = [n for s in body for n in ast.walk(s)]
    loads = {name for n in every for name in _loaded(n)}
    products = [n for n in every if isinstance(n, ast.Call) and _called(n, "dot")]
    operands = Counter(o.id for n in products for o in _operands(n))
    types = (n.value for n in every if isinstance(n, ast.Attribute) and n.attr == "dtype")
    known = operands + Counter(n.id for n in types if isinstance(n, ast.Name))
    read = (n for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    others = Counter(n.id for n in read) - known
    return loads & others.keys() & operands.keys()


def _loaded(n: ast.AST) -> list[str]:
    """The name of a tile that a statement loads."""
    match n:
        case ast.Assign([ast.Name(name)], value) if _called(value, "load"):
            return [name]
        case _:
            return []


def _operands(product: ast.Call) -> list[ast.Name]:
    """The operands of a product that are tiles by themselves, as they are or transposed."""
    sides = (_plain(a) for a in product.args[:2])
    return [a for a in sides if isinstance(a, ast.Name)]


def _plain(a: ast.expr) -> ast.expr:
    """An operand without what changes its layout, or its type: maybe to the one that it has."""
    match a:
        case ast.Call(ast.Attribute(attr="trans"), [inner]):
            return _plain(inner)
        case ast.Call(ast.Attribute(inner, "to")):
            return _plain(inner)
        case _:
            return a


def _called(n: ast.AST, name: str) -> bool:
    """Whether something is a call of a method or function of this name."""
    return isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == name
