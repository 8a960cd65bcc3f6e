"""Operations on a result: transform, update, check, reconstruct.

arguments               arguments of these operations
model                   a stored result as factors
summary                 mergeable summary of samples
transform               coordinates of new rows in the components of a result
transform_pass          folds of transform
sparse_transform_pass   fold of transform over stored numbers of a sparse matrix
update                  components of old and new samples
kept_rows               fold of update that keeps a few rows
check                   residuals of a result against its matrix
sparse_check_pass       fold of check over stored numbers of a sparse matrix
reconstruct             the matrix from its factors
"""
