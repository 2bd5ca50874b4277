"""Java for the servers of the test kit: finds a runtime, and fetches jars of pinned versions."""

from zkconsumer.testing.java.runtime import Java, find_java

__all__ = ["Java", "find_java"]
