"""TLS and SASL of connections to brokers."""

from simpleconsumer.security.secret import WrongSecuritySetting
from simpleconsumer.security.security import Security

__all__ = ["Security", "WrongSecuritySetting"]
