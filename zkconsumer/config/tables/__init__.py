"""The tables of all settings: names, types, defaults, ranges, meanings."""
