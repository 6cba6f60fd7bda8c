from cel_expr_python.cel import CelExtensionBase

class ExtStrings(CelExtensionBase):
    def __init__(self, version: int = ...) -> None: ...
