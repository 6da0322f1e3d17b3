"""The live page of runs: reads run directories, serves them to a browser, or saves them as one HTML file.

files ('files')  ->  one run ('run')  ->  a folder of runs ('folder')  ->  server-sent events ('stream', 'server')
"""
