#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of `paceline local` for CreateTrainingJob against the API's model in botocore, and saved bodies against botocore's own validation.

Needs PyPI for botocore; skips without.
"""
import glob
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD, SOURCE = os.environ["PACELINE_BUILD"], os.environ["PACELINE_SOURCE"]
sys.path.insert(0, f"{SOURCE}/tests/support")
from horovod_python import pip, run, skip  # noqa: E402
from python_with import python_with  # noqa: E402

OBJECT, LIST, MAP, TEXT, WHOLE, BOOL, IGNORED, REFUSED = range(8)
KINDS = {"structure": OBJECT, "list": LIST, "map": MAP, "string": TEXT, "integer": WHOLE, "long": WHOLE, "boolean": BOOL}
VALIDATE = """
import json, sys
import botocore.session, botocore.validate
session = botocore.session.get_session()
model = session.get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
report = botocore.validate.ParamValidator().validate(json.load(open(sys.argv[1])), model)
sys.exit(report.generate_report() if report.has_errors() else 0)
"""
# What the table leaves to others on purpose: types of instances, of which new ones come each month; numbers that the API does not limit; a role and a
# place for the output, which --save-job fills with REPLACE.
ANY_TEXT = {"ResourceConfig.InstanceType", "ResourceConfig.InstanceGroups[].InstanceType"}
MORE_REQUIRED = {"InputDataConfig[].DataSource.S3DataSource"}


def rows_of(shapes):
    """path -> (shape, whether it is required), of all keys that a body may have."""
    rows = {}

    def walk(path, name, required, above):
        shape = shapes[name]
        rows[path] = (shape, required)
        if name in above or len(above) > 6:
            return
        above = above | {name}
        if shape["type"] == "structure":
            for key, member in shape["members"].items():
                walk(f"{path}.{key}" if path else key, member["shape"], key in shape.get("required", []), above)
        elif shape["type"] == "list":
            walk(path + "[]", shape["member"]["shape"], False, above)
        elif shape["type"] == "map":
            walk(path + "{name}", shape["key"]["shape"], False, above)
            walk(path + "{}", shape["value"]["shape"], False, above)

    walk("", "CreateTrainingJobRequest", False, set())
    return rows


def compare(model, table):
    rows, differ = rows_of(model["shapes"]), []
    ours = {row["path"]: row for row in table}
    for path, (shape, _) in rows.items():
        above = [path[:i] for i, letter in enumerate(path) if letter in ".[{"]
        if path and path not in ours and not any(ours.get(parent, {}).get("kind") == IGNORED for parent in above) and path.count(".") < 2 and "[]" not in path:
            differ.append(f"{path}: a key of the API that the table has not")
    for path, row in ours.items():
        if path not in rows:
            print(f"{path}: the installed botocore does not know it")
            continue
        shape, required = rows[path]
        if row["kind"] in (IGNORED, REFUSED):
            continue
        wanted = {"kind": KINDS[shape["type"]], "required": required or path in MORE_REQUIRED}
        if shape["type"] == "string" and path not in ANY_TEXT:
            wanted |= {"words": " ".join(shape.get("enum", [])), "pattern": shape.get("pattern", "")}
        if "enum" not in shape and path not in ANY_TEXT:
            wanted |= {bound: shape[key] for bound, key in (("least", "min"), ("most", "max")) if key in shape}
        differ += [f"{path}: {name} is {row[name]!r}, not {value!r}" for name, value in wanted.items() if row[name] != value]
    assert len(ours) > 60, len(ours)
    assert not differ, "the table and the API differ:\n" + "\n".join(differ)


def saved(python, work):
    words = [f"{BUILD}/entrypoint/paceline", "local"]
    body = {"TrainingJobName": "job", "Tags": [{"Key": "a", "Value": "b"}], "ResourceConfig": {"InstanceType": "ml.m5.large", "VolumeSizeInGB": 8},
            "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}, "StoppingCondition": {"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 99},
            "EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": "s3://bucket/c"}}
    (work / "job.json").write_text(json.dumps(body))
    more = ["--hosts", "2", "--channel", f"a={work}:pipe:shuffle=3", "--channel", f"b={work}:sharded:recordio", "--hyperparameter", "x=1", "--environment", "A=b",
            "--metric", "loss=loss ([0-9.]+)", "--max-run", "60"]
    for job in ([], ["--job", work / "job.json"]):
        run(*map(str, words), *map(str, job), *more, "--save-job", str(work / "saved.json"), "--", "./train", "--x")
        run(python, "-c", VALIDATE, str(work / "saved.json"))
        kept = json.loads((work / "saved.json").read_text())
        assert kept["ResourceConfig"]["InstanceCount"] == 2 and [channel["ChannelName"] for channel in kept["InputDataConfig"]] == ["a", "b"], kept
        assert not job or all(kept[key] == body[key] for key in ("Tags", "VpcConfig", "CheckpointConfig", "EnableManagedSpotTraining")), kept
    del kept["ResourceConfig"]["InstanceCount"], kept["TrainingJobName"]
    (work / "broken.json").write_text(json.dumps(kept))
    said = run(python, "-c", VALIDATE, str(work / "broken.json"), expect=1)
    assert "TrainingJobName" in said, said  # the validation does refuse


def main():
    base = python_with("venv")
    if not base:
        skip("no Python here has venv")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        run(base, "-m", "venv", str(work / "venv"))
        python = str(work / "venv/bin/python")
        pip(python, "botocore")
        [path] = glob.glob(f"{folder}/venv/lib/python*/site-packages/botocore/data/sagemaker/*/service-2.json*")
        opened = gzip.open(path) if path.endswith(".gz") else open(path, encoding="utf-8")
        with opened as file:
            model = json.load(file)
        table = json.loads(subprocess.run([f"{BUILD}/tests/integration/local_limits"], capture_output=True, text=True, check=True).stdout)
        compare(model, table)
        saved(python, work)
    print("the table is the API's, and saved bodies are valid")


if __name__ == "__main__":
    main()
