"""Takes metrics in: a StatsD-compatible collector over UDP. Nothing is here yet."""
