"""The operators, one record each: adding one is adding a record to a file of its family here, or
calling `nk.operator` or `nk.reduction` anywhere else."""

# Each family adds its records to the tables when it is imported.
from napkin.ir.operators import arithmetic as arithmetic
from napkin.ir.operators import exponential as exponential
from napkin.ir.operators import integer as integer
from napkin.ir.operators import randomness as randomness
from napkin.ir.operators import special as special
from napkin.ir.operators.logic import RELATIONS as RELATIONS
from napkin.ir.operators.record import FUNCTIONS as FUNCTIONS
from napkin.ir.operators.record import POINTWISE as POINTWISE
from napkin.ir.operators.record import REDUCTIONS as REDUCTIONS
from napkin.ir.operators.record import Kind as Kind
