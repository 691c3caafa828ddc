"""Events and losses in batches to Spark, for rolling metrics. So far only the time of events."""
