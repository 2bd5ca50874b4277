"""The settings of a consumer: one table of names, types and defaults, and one frozen value made of them."""

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.typed_settings import ConsumerSettings, OptionalSettings

__all__ = ["ConsumerConfig", "ConsumerSettings", "OptionalSettings"]
