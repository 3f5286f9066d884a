"""The operators, one record each: adding one is adding a record to a file of its family here, or
calling `nk.operator` or `nk.reduction` anywhere else."""

# Each family adds its records to the tables when it is imported.
from napkin.diagram.operators import arithmetic as arithmetic
from napkin.diagram.operators import exponential as exponential
from napkin.diagram.operators import special as special
from napkin.diagram.operators import whole as whole
from napkin.diagram.operators.logic import RELATIONS as RELATIONS
from napkin.diagram.operators.record import FUNCTIONS as FUNCTIONS
from napkin.diagram.operators.record import POINTWISE as POINTWISE
from napkin.diagram.operators.record import REDUCTIONS as REDUCTIONS
from napkin.diagram.operators.record import Kind as Kind
