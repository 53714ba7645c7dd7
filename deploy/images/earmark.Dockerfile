# The worker, and whatever else runs Earmark: the server and the metrics use the same image.
#
#     docker build -f deploy/images/earmark.Dockerfile -t earmark .
#     docker build -f deploy/images/earmark.Dockerfile -t earmark:audio --build-arg EXTRAS=audio,scale .
#     docker build -f deploy/images/earmark.Dockerfile -t earmark:ray --build-arg EXTRAS=scale,ray .     # for [engine]
FROM python:3.11-slim-bookworm

# What decodes M4A, what hears that two clips are one recording, and a process that collects ended children.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ffmpeg libchromaprint1 tini \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /earmark
ARG EXTRAS=scale
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY flows flows
COPY tasks tasks
COPY schemas schemas
COPY prompts prompts
COPY deploy/import deploy/import
RUN pip install --no-cache-dir uv \
 && uv pip install --system --no-cache -c constraints.txt -e ".[${EXTRAS}]"
COPY data/demo data/demo
COPY deploy deploy

# Nobody's account: a flow writes to the store and to its home, nowhere else.
RUN useradd --create-home --uid 1000 earmark && mkdir -p data/store && chown earmark data/store
USER earmark
ENV DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30 \
    PREFECT_LOGGING_SETTINGS_PATH=/earmark/deploy/logging.yaml \
    EARMARK_LOG=json \
    EARMARK_STORE=/earmark/data/store \
    EARMARK_ROOTS=/earmark
ENTRYPOINT ["tini", "--"]
CMD ["prefect", "worker", "start", "--pool", "local", "--with-healthcheck"]
