#!/usr/bin/env bash
# The first program of both images: writes into files what Spark and Airflow take only from files, then runs what was
# asked for. Secrets come by the environment; as options they would show in the list of processes.
#   SPARK_DEFAULTS      lines of spark-defaults.conf
#   SPARK_AUTH_SECRET   what Spark's processes prove to each other that they know
#   AIRFLOW_PASSWORDS   JSON of user names and passwords for Airflow's simple auth manager
set -euo pipefail
umask 027
if [ -n "${TMPDIR:-}" ]; then mkdir -p "$TMPDIR"; fi

private_file() { # writes its input to the file $1, for this user only
  (umask 077 && cat >"$1")
}

if [ -n "${SPARK_DEFAULTS:-}${SPARK_AUTH_SECRET:-}" ]; then
  {
    printf 'spark.master.rest.enabled false\n' # it takes applications from whoever asks
    printf '%s\n' "${SPARK_DEFAULTS:-}"
    if [ -n "${SPARK_AUTH_SECRET:-}" ]; then
      printf 'spark.authenticate true\nspark.authenticate.secret %s\n' "$SPARK_AUTH_SECRET"
    fi
  } | private_file "$SPARK_CONF_DIR/spark-defaults.conf"
fi
if [ -n "${AIRFLOW_PASSWORDS:-}" ]; then
  export AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE=/run/headrace/airflow-passwords.json
  printf '%s\n' "$AIRFLOW_PASSWORDS" | private_file "$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
fi

require_secret() {
  : "${SPARK_AUTH_SECRET:?is not set: a $1 that runs the code of whoever asks is started with a secret only}"
}

case "${1:-}" in
  master) # SPARK_MASTER_HOST, SPARK_MASTER_PORT and SPARK_MASTER_WEBUI_PORT say where
    require_secret master
    set -- spark-class org.apache.spark.deploy.master.Master
    ;;
  worker) # of the master SPARK_MASTER_URL; SPARK_WORKER_CORES, SPARK_WORKER_MEMORY, SPARK_LOCAL_DIRS, ... as in Spark
    require_secret worker
    set -- spark-class org.apache.spark.deploy.worker.Worker "${SPARK_MASTER_URL:?is not set: spark://host:port of the master}"
    ;;
  driver) # as Spark on Kubernetes starts a driver
    shift
    set -- spark-submit --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
  executor) # as Spark on Kubernetes starts an executor: its JVM options are SPARK_JAVA_OPT_0, _1, ...
    options=()
    for ((n = 0; ; n++)); do
      name="SPARK_JAVA_OPT_$n"
      [ -n "${!name+set}" ] || break
      options+=("${!name}")
    done
    set -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "$SPARK_CONF_DIR:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  "")
    echo "say what to run: master, worker, or a command like headrace or airflow" >&2
    exit 64
    ;;
esac
unset SPARK_AUTH_SECRET AIRFLOW_PASSWORDS
exec "$@"
