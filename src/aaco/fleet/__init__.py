"""The warehouse of a fleet: facts of many bundles in one lake of Parquet files, and what they say together."""
