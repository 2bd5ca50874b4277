"""The audit of mirrors: both logs, or the target and the leaves that were written while it was copied, are compared."""
