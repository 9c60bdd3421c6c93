# Everything that the results need, from requirements.lock: no GPU, no network once it is built.
#   docker build -t heshare .
#   docker run --rm -v "$PWD/figures:/heshare/figures" heshare make figures verify
# Python is that of the reference results (reference/run.json), so that they come out byte for byte.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*

# The Makefile uses an active environment in which heshare is installed from this very folder.
ENV VIRTUAL_ENV=/opt/venv
ENV PATH="$VIRTUAL_ENV/bin:$PATH"
RUN python -m venv "$VIRTUAL_ENV"

WORKDIR /heshare
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY . .
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps --no-build-isolation -e .
RUN python -m heshare doctor --compile

CMD ["make", "help"]
