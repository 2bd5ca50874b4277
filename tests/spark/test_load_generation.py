"""Which generation of Kafka `zkconsumer load` finds in ZooKeeper before Spark starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from zkconsumer.errors import ConfigError
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.job import limited
from zkconsumer.spark.load.settings import LoadSettings, of_found_generation
from zkconsumer.spark.load.writing import Shape
from zkconsumer.spark.settings_files import configured_connection
from zkconsumer.testing.zookeeper import ZooKeeperServer

OF_07 = b"127.0.0.1-1400000000000:127.0.0.1:9092"
OF_08 = b'{"jmx_port":-1,"timestamp":"1400000000000","host":"127.0.0.1","version":1,"port":9093}'


@pytest.mark.parametrize(("brokers", "is_of_07"), [([OF_07, OF_07], True), ([OF_08], False), ([OF_07, OF_08], False),
                                                   ([], False)])  # fmt: skip
def test_the_brokers_decide_unless_the_settings_do(
    zookeeper: ZooKeeperServer,
    zookeeper_client: KazooClient,
    fresh_topic: Callable[[], str],
    brokers: list[bytes],
    is_of_07: bool,
) -> None:
    chroot = f"/{fresh_topic()}"
    zookeeper_client.create(f"{chroot}/brokers/ids", makepath=True)
    for number, data in enumerate(brokers):
        zookeeper_client.create(f"{chroot}/brokers/ids/{number}", data)
    source = {"zookeeper.connect": zookeeper.connect + chroot, "subscribe": "clicks"}
    settings = LoadSettings(source, "/nowhere")
    with configured_connection(settings.options().config) as port:
        found = of_found_generation(settings, port)
        named = {each: LoadSettings({**source, "kafka.generation": each}, "/nowhere") for each in ("0.7", "0.8")}
        for generation, other in ((OF_07, "0.8"), (OF_08, "0.7")):
            if brokers and set(brokers) == {generation}:
                with pytest.raises(ConfigError, match=f"kafka.generation is '{other}'; it must be .* or left out"):
                    of_found_generation(named[other], port)
            else:
                assert of_found_generation(named[other], port) is named[other]
        if is_of_07:
            with pytest.raises(LoadRefused, match="cannot be limited by messages or time"):
                limited(found, 5.0)
            with pytest.raises(LoadRefused, match=r"a table \(iceberg\) cannot have messages of Kafka 0.7"):
                of_found_generation(LoadSettings(source, "/nowhere", Shape("iceberg", "date")), port)
    assert found.options().counts_bytes == found.shape.has_places == is_of_07
