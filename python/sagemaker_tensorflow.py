# SPDX-License-Identifier: Apache-2.0
"""What AWS's package sagemaker-tensorflow was for: PipeModeDataset, the records of a channel in Pipe Mode, for TensorFlow 2.12 to 2.21.

    from sagemaker_tensorflow import PipeModeDataset
    dataset = PipeModeDataset(channel="training", record_format="TFRecord").repeat(3).batch(64).map(parse).prefetch(2)

Its scripts run unchanged. It stands on paceline.data, which gives whole batches of decoded fields for less.
"""
import json
import math
import os
import sys

import tensorflow as tf

from paceline._data_tensorflow import TensorflowDataset
from paceline.data import Dataset

__all__ = ["PipeModeDataset", "PipeModeDatasetException"]

_FORMATS = {"RecordIO": "recordio", "TFRecord": "tfrecord", "TextLine": "lines"}
_PIPES = "/opt/ml/input/data"
_BATCH = 32  # records that pass from thread to thread at a time
sys.modules.setdefault(__name__ + ".pipemode", sys.modules[__name__])  # where AWS's package has it


class PipeModeDatasetException(Exception):
    """The channel is not there or not in Pipe Mode, or an option is wrong."""


class PipeModeDataset(TensorflowDataset):
    """The records of `channel`, each a scalar string. Each iterator reads the next FIFO of Pipe Mode, `pipe_dir`/`channel`_N, whose number is kept in `state_dir`.

    `record_format`: RecordIO, TFRecord, TextLine. `config_dir` has inputdataconfig.json. `max_corrupted_records_to_skip`: so many damaged records of TFRecord that
    follow each other are left out. `benchmark`: time and bytes are printed when an iterator is destroyed, and every `benchmark_records_interval` records."""

    def __init__(self, channel, record_format="RecordIO", state_dir="/opt/ml/pipe_state", pipe_dir=_PIPES, config_dir="/opt/ml/input/config",
                 benchmark=False, benchmark_records_interval=0, max_corrupted_records_to_skip=0):
        os.makedirs(state_dir, exist_ok=True)
        with open(os.path.join(config_dir, "inputdataconfig.json"), encoding="utf-8") as file:
            channels = json.load(file)
        if channel not in channels:
            raise PipeModeDatasetException(f"Channel {channel} not found in Training Job InputDataConfig")
        if channels[channel].get("TrainingInputMode", "").lower() != "pipe":
            raise PipeModeDatasetException(f"Channel {channel} is not a PipeMode channel")
        if max_corrupted_records_to_skip > 0 and record_format != "TFRecord":
            raise PipeModeDatasetException("max_corrupted_records_to_skip can only be set for record_format='TFRecord'")
        if record_format not in _FORMATS:
            raise tf.errors.InvalidArgumentError(None, None, f"Invalid record format: {record_format}")
        skips = max_corrupted_records_to_skip > 0
        batch = 1 if skips else math.gcd(_BATCH, benchmark_records_interval)  # 1: skipped records are counted between batches
        path, place = os.path.join(pipe_dir, channel), os.environ.get(f"SM_CHANNEL_{channel.upper()}")
        name, is_dealt = channel, False
        if place and pipe_dir == _PIPES and os.path.normpath(place) != path:  # a process of several on a host, or a job that lies elsewhere, has its own FIFOs
            path, name = place, place.strip("/").replace("/", "-")
            is_dealt = channel in os.environ.get("PACELINE_FIFOS", "").split(",")
        state = os.path.join(state_dir, f".{name}-pipe_mode-")
        super().__init__(Dataset(pipe_dir, {"record": bytes}, batch, rank=0, size=1, format=_FORMATS[record_format], decode="record", keep_empty_lines=True,
                                 skip_corrupt=skips),
                         pipe_channel=channel.encode(), pipe_path=path.encode(), pipe_is_dealt=is_dealt, epoch_path=(state + "state").encode(),
                         lock_path=(state + "lock").encode(), max_skipped=max_corrupted_records_to_skip, reports_totals=benchmark,
                         report_samples=benchmark_records_interval)

    def _made_of(self, batches):
        return batches.map(lambda batch: batch["record"]).unbatch()
