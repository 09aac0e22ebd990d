"""P4Runtime: a core without transport, and a gRPC server around it."""

from dataplane.rpc.access.tls import TlsFiles
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.core import P4RuntimeCore, StreamSession
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError
from dataplane.switch.p4runtime.server import P4RuntimeServer

__all__ = ["Code", "P4RuntimeCore", "P4RuntimeError", "P4RuntimeServer", "StreamSession", "SwitchControl", "TlsFiles"]
