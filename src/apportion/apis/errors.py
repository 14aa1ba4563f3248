"""Errors in user input, as one tree.

    ApportionError
    └── InputError          names the field, the value and the fix
        ├── QuantityError   an amount that Kubernetes could not read either
        ├── ProfileError    a MIG profile that is misspelt or that no GPU model has
        ├── RequestError    a pod that asks for something that can never be right
        └── CatalogError    a GPU model whose geometry contradicts itself
    └── LedgerError         a change that would overcommit a GPU or contradict the ledger

Every leaf carries a stable `code`, so that callers decide by code and never by text.
"""

from __future__ import annotations


class ApportionError(Exception):
    """The root: everything that the deciding code raises on purpose."""

    code = "Error"


class InputError(ApportionError):
    """Invalid user input, with the field, the value and a valid alternative."""

    code = "InvalidInput"

    def __init__(self, field: str, value: object, fix: str, *, code: str | None = None) -> None:
        super().__init__(f"{field}: {shown(value)}: {fix}")
        self.field = field
        self.value = value
        self.fix = fix
        if code is not None:
            self.code = code


class QuantityError(InputError):
    code = "InvalidQuantity"

    def __init__(self, value: object, reason: str, *, field: str = "quantity") -> None:
        super().__init__(field, value, reason)
        self.reason = reason


class ProfileError(InputError):
    code = "UnknownProfile"


class RequestError(InputError):
    code = "InvalidRequest"


class CatalogError(InputError):
    code = "InvalidModel"


class LedgerError(ApportionError):
    """A change that the ledger does not allow."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_SHOWN = 80


def shown(value: object) -> str:
    """A value as an error shows it: quoted, and shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
