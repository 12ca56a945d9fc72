"""Many notebooks over releases and settings: the matrix, the groups that share an engine, results, expectations."""
