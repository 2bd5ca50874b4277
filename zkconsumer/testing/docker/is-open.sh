#!/bin/bash
# Ends with status 0 if something takes connections on PORT: the health check of both images.
exec 3<>"/dev/tcp/127.0.0.1/$PORT"
