"""Messages before they are sent: keys, values, encoders, partitioners and handlers."""
