base:
  '*':
    - app
  'role:web':
    - match: grain
    - web
  'role:(db|app|cache)':
    - match: grain_pcre
    - backend
