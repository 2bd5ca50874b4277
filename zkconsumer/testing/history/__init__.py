"""Histories of groups as events on one clock, and the checks that find loss, repetition and double ownership. Pure."""

from zkconsumer.testing.history.events import Event, Place

__all__ = ["Event", "Place"]
