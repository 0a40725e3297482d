"""The rules of headgate: values in, values out. Nothing here touches a clock, a socket, a disk or a thread."""
