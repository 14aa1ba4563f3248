"""Why a BindRequest cannot be carried out: it fails with this reason, and the scheduler decides again."""

from __future__ import annotations

from apportion.cluster import errors

REFUSED_BY_SERVER = (errors.BadRequest, errors.Forbidden, errors.Invalid, errors.MethodNotAllowed)
"""Answers that do not change when the same is written again."""


class CannotBind(Exception):
    """The text is the reason, in one sentence."""


class NotWanted(Exception):
    """The BindRequest was withdrawn while it was carried out."""
