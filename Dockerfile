FROM python:3.13-slim
WORKDIR /app
COPY pyproject.toml README.md topics.yaml ./
COPY schemas schemas
COPY store store
COPY streams streams
RUN pip install --no-cache-dir ".[worker]"
USER nobody
CMD ["workflow-runs", "worker"]
