replicas: {{ 3 if grains['role'] == 'db' else 2 }}
dump:
  hour: {{ grains['num_cpus'] % 24 }}
  keep: [daily, weekly]
