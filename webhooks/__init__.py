"""Events as signed HTTP requests, out and in. Nothing is here yet."""
