"""What commands need of a terminal: tables, signals, standard streams, temporary folders."""
