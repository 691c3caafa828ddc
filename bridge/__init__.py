"""Events and losses in batches to Spark, for rolling metrics. Nothing is here yet."""
