"""Find subscripts by a string whose base has no known type: rows whose keys mypy does not check.

A reading of the syntax, in seconds where mypy would take minutes: a name has the type of its annotation, else that of
the expression bound to it. `Any`, `Row`, lambdas' parameters and everything not understood count as untyped.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

UNTYPED = re.compile(r"\b(Any|Row|object)\b|\b(dict|Mapping|list)$")
GENERIC = re.compile(r"\b(R|Got|T|Kept|Draft)\b")  # results as typed as the arguments
FIRST = re.compile(
    "sorted|list|tuple|set|dict|enumerate|reversed|iter|next|zip|islice|min|max|chain|deepcopy|values|items|get|copy|pop|"
    "setdefault|defaultdict"
)  # calls whose results are as typed as what they are given
Bindings = dict[str, list[ast.AST | str]]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, *COMPREHENSIONS)


class Known:
    """Annotations of functions' results and classes' fields by name, and names of tables with a row type."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self.results: dict[str, set[str]] = defaultdict(set)
        self.fields: dict[str, set[str]] = defaultdict(set)
        self.tables: set[str] = set()
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.results[node.name].add(ast.unparse(node.returns) if node.returns else "Any")
            elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Table("):
                self.tables |= {ast.unparse(target) for target in node.targets}
            elif isinstance(node, ast.ClassDef):
                self.results[node.name].add(node.name)
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        self.fields[field.target.id].add(ast.unparse(field.annotation))
                    elif isinstance(field, ast.FunctionDef) and field.decorator_list:  # properties
                        self.fields[field.name].add(ast.unparse(field.returns) if field.returns else "Any")


def untyped_subscripts(tree: ast.Module, known: Known) -> Iterator[ast.Subscript]:
    """Give the subscripts by a string on bases without a known type; a module's own functions come before others."""
    own = Known([tree])
    own.results, own.fields = {**known.results, **own.results}, {**known.fields, **own.fields}
    own.tables |= known.tables
    yield from _walk(tree, bindings(tree, {}, None), own)


def _walk(scope: ast.AST, names: Bindings, known: Known, subject: ast.AST | None = None) -> Iterator[ast.Subscript]:
    if isinstance(scope, ast.Call):  # a lambda's parameter: `sorted(rows, key=lambda row: …)`, `rows.sort(key=…)`
        method = scope.func.value if isinstance(scope.func, ast.Attribute) else scope.func
        subject = scope.args[0] if scope.args else method
    for node in ast.iter_child_nodes(scope):
        inner = bindings(node, names, subject) if isinstance(node, SCOPES) else names
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
            and ast.unparse(node.value) not in ("Literal", "Annotated")
            and not typed(node.value, names, known)
        ):
            yield node
        yield from _walk(node, inner, known, subject)


def bindings(scope: ast.AST, outer: Bindings, subject: ast.AST | None) -> Bindings:
    """Give what each name of a scope is bound to: its annotation as text, or expressions."""
    own: Bindings = defaultdict(list)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        arguments = scope.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            own[one.arg].append(ast.unparse(one.annotation) if one.annotation else subject or "Any")
    for node in _inside(scope):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own[node.target.id] = [ast.unparse(node.annotation)]
        for target, value in _bound(node):
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and not any(isinstance(one, str) for one in own[name.id]):
                    own[name.id].append(value)
    return {**outer, **own}


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Give the nodes of a scope, without those of scopes in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, SCOPES):
            yield from _inside(node)


def _bound(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Give the targets that a node binds, each with its expression."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield from _iterated(target, value)
        case ast.comprehension(target=target, iter=value):
            yield from _iterated(target, value)
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.withitem(optional_vars=ast.AST() as target, context_expr=value):
            yield target, value


def _iterated(target: ast.AST, value: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    match target, value:
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=args) if len(args) == len(targets):
            for one, of in zip(targets, args, strict=True):
                yield from _iterated(one, of)
        case ast.Tuple(elts=[number, one]), ast.Call(func=ast.Name(id="enumerate"), args=[of, *_]):
            yield number, ast.Constant(0)
            yield from _iterated(one, of)
        case _:
            yield target, value


def typed(node: ast.AST | str, names: Bindings, known: Known, seen: frozenset[str] = frozenset()) -> bool:
    """Tell whether an expression's type is known to be none of `UNTYPED`; `seen` names are being looked up."""
    if isinstance(node, str):
        return UNTYPED.search(node) is None

    def all_typed(nodes: Iterable[ast.AST | str | None]) -> bool:
        return all(typed(one, names, known, seen) for one in nodes if one is not None)

    match node:
        case ast.Name(id=name):
            if name in known.tables or name in seen:  # `row = {**row, …}` adds nothing unknown
                return True
            return bool(names.get(name)) and all(typed(one, names, known, seen | {name}) for one in names[name])
        case ast.Attribute(attr=name):
            return bool(known.fields.get(name)) and all_typed(known.fields[name])
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            if FIRST.fullmatch(name):
                return all_typed([node.func.value] if isinstance(node.func, ast.Attribute) else args)
            results = known.results.get(name, {"Any"})
            if any(GENERIC.search(one) for one in results):
                return all_typed(args)
            return all_typed(results)
        case ast.Subscript(value=value) | ast.Await(value=value) | ast.Starred(value=value):
            return all_typed([value])
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return all_typed(parts)
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            return all_typed([one, other])
        case ast.Dict(keys=keys, values=values):
            return all_typed(value for key, value in zip(keys, values, strict=True) if key is None)
        case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt) | ast.SetComp(elt=elt) | ast.DictComp(value=elt):
            return typed(elt, bindings(node, names, None), known, seen)
        case ast.NamedExpr(value=value):
            return all_typed([value])
        case ast.Constant() | ast.JoinedStr():
            return True
    return False
