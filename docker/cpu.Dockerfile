# AACO for machines without a GPU, with dashboard, API, PDF, aaco top and OTLP:
#   docker build -f docker/cpu.Dockerfile -t aaco .
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/aaco
COPY docker/cpu.lock docker/cpu.lock
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/aaco/bin/pip install --require-hashes --requirement docker/cpu.lock
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/aaco/bin/pip install --no-deps --no-build-isolation .

FROM ${BASE}
RUN useradd --uid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin aaco
COPY --from=build /opt/aaco /opt/aaco
ENV PATH=/opt/aaco/bin:$PATH \
    HOME=/data \
    AACO_CACHE_DIR=/data/.cache/aaco \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
EXPOSE 8501 8502
STOPSIGNAL SIGINT
ENTRYPOINT ["aaco"]
CMD ["--help"]
