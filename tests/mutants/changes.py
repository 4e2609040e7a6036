"""All small changes of a source file: one operator, constant, condition or statement each.

Pure: takes in a text and returns changes of it.  A change replaces one piece of the text, so that all other lines stay
as they are.  A change may be without effect; a person has to judge that.
"""

import ast
from dataclasses import dataclass
from typing import Final

_OTHER_COMPARISON: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# What a log says is not tested for each line of the code.
_LOGS: Final = ("_log", "_LOGGER")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the file `file`, in the function `scope` ("" outside of functions), at `line`, counted from 1.

    `statement` is the line of code as it was, and `before` becomes `after`; these four tell a change from the others,
    also when lines move.  `start` and `end` are the places in the text, in bytes.  `is_in_function` is False for what
    runs when the module is imported.
    """

    file: str
    scope: str
    line: int
    statement: str
    before: str
    after: str
    start: int
    end: int
    is_in_function: bool

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What tells this change from the others; two equal pieces of one line have one key."""
        return self.file, self.scope, self.statement, self.before, self.after

    def applied(self, text: str) -> str:
        """Return `text` with the change."""
        data = text.encode()
        assert data[self.start : self.end].decode() == self.before
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def changes(file: str, text: str) -> list[Change]:
    """Return all small changes of `text`, the content of the Python file `file`, in the order of the text."""
    found = _Finder(file, text)
    found.visit(ast.parse(text))
    return sorted(found.changes, key=lambda change: (change.start, change.end, change.after))


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, text: str) -> None:
        self.changes: list[Change] = []
        self._file = file
        self._data = text.encode()
        self._lines = text.splitlines()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._is_in_function = False

    def _add(self, node: ast.expr | ast.stmt, after: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        before = self._data[start:end].decode()
        statement = self._lines[node.lineno - 1].strip()
        self.changes.append(
            Change(
                self._file,
                ".".join(self._scope),
                node.lineno,
                statement,
                before,
                after,
                start,
                end,
                is_in_function=self._is_in_function,
            )
        )

    # -- where we are -------------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_scope(node.name, node.body, is_function=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._visit_scope(node.name, node.body, is_function=True)

    def _visit_scope(self, name: str, body: list[ast.stmt], *, is_function: bool) -> None:
        was_in_function, self._is_in_function = self._is_in_function, is_function
        self._scope.append(name)
        for statement in body:
            self.visit(statement)
        self._scope.pop()
        self._is_in_function = was_in_function

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass  # texts for people

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass  # for the type checker

    # -- statements ---------------------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if _is_log(call):
            return
        self._drop(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        # Without the assignment of a local name the function would fail at once, and show nothing.
        if not any(_stores(part) for target in node.targets for part in ast.walk(target)):
            self._drop(node)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._drop(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)  # the error itself is a text for people

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    def _drop(self, node: ast.stmt) -> None:
        self._add(node, "pass")
        if self._is_in_function:
            self._add(node, "return")

    def visit_Try(self, node: ast.Try) -> None:
        for handler in node.handlers:
            if not (len(handler.body) == 1 and isinstance(handler.body[0], ast.Raise)):
                first, last = handler.body[0], handler.body[-1]
                whole = ast.copy_location(ast.Pass(), first)
                whole.end_lineno, whole.end_col_offset = last.end_lineno, last.end_col_offset
                self._add(whole, "raise")
        self.generic_visit(node)

    # -- conditions ---------------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._add(test, f"({ast.unparse(test.operand)})")
        elif not (isinstance(test, ast.Compare) and len(test.ops) == 1 and _is_flipped(test.ops[0])):
            self._add(test, f"(not ({ast.unparse(test)}))")

    # -- expressions --------------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, operator in enumerate(node.ops):
            other = _OTHER_COMPARISON[type(operator)]()
            operators = [*node.ops[:at], other, *node.ops[at + 1 :]]
            self._add(node, ast.unparse(ast.Compare(node.left, operators, node.comparators)))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        for left_out in range(len(node.values)):
            values = [*node.values[:left_out], *node.values[left_out + 1 :]]
            rest = values[0] if len(values) == 1 else ast.BoolOp(node.op, values)
            self._add(node, f"({ast.unparse(rest)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, str(node.value + 1))
            self._add(node, str(node.value - 1) if node.value >= 1 else f"({node.value - 1})")

    def visit_Call(self, node: ast.Call) -> None:
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        is_symmetric = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
        if len(plain) == len(node.args) >= 2 and not (is_symmetric or _is_log(node) or _is_check_of_type(node)):
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            self._add(node, ast.unparse(ast.Call(node.func, swapped, node.keywords)))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        is_assertion = node.arg == "strict" and isinstance(node.value, ast.Constant) and node.value.value is True
        if not is_assertion:  # the strict=True of a zip: both are of one length
            self.generic_visit(node)


def _is_log(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in _LOGS


def _is_check_of_type(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "cast", "TypeVar", "ParamSpec")


def _is_flipped(operator: ast.cmpop) -> bool:
    """Return whether the other comparison for `operator` is its negation."""
    return isinstance(operator, ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn)


def _stores(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
