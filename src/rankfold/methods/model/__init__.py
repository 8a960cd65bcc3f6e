"""Operations on a result: transform, update, check, reconstruct.

arguments               arguments of these operations
model                   a stored result as factors
transform               coordinates of new rows in the components of a result
transform_pass          folds of transform; fold of transform over stored numbers of a sparse matrix
update                  components of old and new samples; fold of update that keeps a few rows; mergeable
                        summary of samples
check                   residuals of a result against its matrix; fold of check over stored numbers of a
                        sparse matrix
reconstruct             the matrix from its factors
"""
