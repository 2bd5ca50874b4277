"""The user as whom a cluster, its brokers and the members of its groups authenticate to ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ZooKeeperLogin"]


@dataclass(frozen=True)
class ZooKeeperLogin:
    """A user of ZooKeeper, for SASL with DIGEST-MD5, which servers and Java clients from 3.4 on have.

    Attributes:
        username: Its name.
        password: Its password; in no command line, and only in files that nobody else can read.
    """

    username: str
    password: str = field(repr=False)

    def settings(self) -> dict[str, str]:
        """Return the settings of a consumer of ours."""
        return {"zookeeper.sasl.mechanism": "DIGEST-MD5", "zookeeper.sasl.username": self.username,
                "zookeeper.sasl.password": self.password}  # fmt: skip

    def sasl_options(self) -> dict[str, str]:
        """Return the `sasl_options` of a `KazooClient`."""
        return {"mechanism": "DIGEST-MD5", "service": "zookeeper", "username": self.username,
                "password": self.password}  # fmt: skip

    def jvm_flags(self, folder: Path) -> tuple[str, ...]:
        """Write the login configuration of a Java client into a folder, and return the flags that name it."""
        jaas = folder / "jaas.conf"
        jaas.touch(mode=0o600)
        jaas.write_text(
            "Client {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
            f'  username="{self.username}"\n  password="{self.password}";\n}};\n'
        )
        return (f"-Djava.security.auth.login.config={jaas}",)
