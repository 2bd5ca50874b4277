"""Records the ZooKeeper requests of real Java members: `python tests/simulation/record_java_traces.py [SCENE ...]`.

Plays each scene on real servers and writes `tests/simulation/traces/<scene>.txt`. Takes about half a minute a scene.
"""

from __future__ import annotations

import inspect
import sys

from java_scenes import PARTITIONS, SCENES
from java_traces import FOLDER, format_scene
from real_java_stage import RealStage

VERSIONS = "Kafka 0.8.2.2, ZkClient 0.3, ZooKeeper client 3.4.6"
COMMAND = ".venv/bin/python tests/simulation/record_java_traces.py"


def main(wanted: list[str]) -> None:
    """Record the scenes of these names, or all."""
    unknown = set(wanted) - set(SCENES)
    if unknown:
        sys.exit(f"no such scene: {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    for name in wanted or SCENES:
        scene = SCENES[name]
        with RealStage(PARTITIONS.get(name, 2)) as stage:
            scene(stage)
        comment = f"{inspect.getdoc(scene)}\n{VERSIONS}. Recorded by:\n{COMMAND} {name}"
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.txt").write_text(format_scene(comment, stage.trace), encoding="utf-8")
        print(f"{name}: {sum(len(said) for part in stage.trace.values() for said in part.values())} lines", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
