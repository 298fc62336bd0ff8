"""Every error a person can meet, with the exit code it ends the command with."""

from __future__ import annotations


class LoopError(Exception):
    """The root of what this project raises on purpose."""

    exit_code = 1


class UserError(LoopError):
    """Bad input: one sentence with what was expected, what was found and the next step."""

    exit_code = 2


class StageFailed(LoopError):
    """A stage broke: the cause is chained; the message says what is kept and how to resume."""

    exit_code = 1


class Halted(LoopError):
    """A brake stopped the run between two recorded steps; the same command goes on from there."""

    exit_code = 12


class StoreConflict(LoopError):
    """Another process holds what this one needs; the message names the holder."""

    exit_code = 3


class TornBlob(LoopError):
    """Stored bytes no longer match their digest, or are missing."""

    exit_code = 1


class AttestationFailed(LoopError):
    """A served adapter is not the adapter that was trained; nothing may be sampled from it."""

    exit_code = 1
