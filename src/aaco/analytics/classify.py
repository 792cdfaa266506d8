"""The diagnosis from Python, by itself: `BottleneckClassifier().classify(metrics)`."""

from __future__ import annotations

from collections.abc import Mapping

from aaco.analytics.diagnosis import Diagnosis, diagnose
from aaco.core.readings import Reading


class BottleneckClassifier:
    """Judges readings; `aaco.analytics.diagnosis.diagnose` as a class."""

    def classify(self, metrics: Mapping[str, Reading]) -> Diagnosis:
        """Return the diagnosis of a run's readings, such as `ORTRunner.run().metrics`."""
        return diagnose(metrics)
