# SPDX-License-Identifier: Apache-2.0
"""torchrun for a torch 1.13, which cannot read its own default of --redirects under Python 3.11: the zero of a flag is not a member there."""
import sys

from torch.distributed.elastic.multiprocessing import api

if api.Std.from_str("0") is None:
    parse = api.Std.from_str.__func__
    api.Std.from_str = classmethod(lambda cls, text: api.Std.NONE if text == "0" else parse(cls, text))
from torch.distributed.run import main

sys.exit(main())
