"""Writes the rows of a load into a Delta or an Iceberg table."""
